"""Records that could not be dealt with, however often they were delivered, go to a topic of their own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.origin import row_of
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.messages import Arrived, Message, record_batch_of
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.core.member.dispatch import GivenUp
from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound
from seaweedmq.model.calls import CreateTopics
from seaweedmq.model.description import OPEN, TopicDescription
from seaweedmq.model.topic import TOPIC_NAME_LENGTH_MAX, TopicName, TopicSpec
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)

PREFIX = "dead-letter-"
REASON_LENGTH_MAX = 1_000
PLACE = frozenset({"_segment", "_partition", "_offset"})
"""Columns that say where a record was, and not what it is."""
_HEADERS = PLAIN_SCHEMA.field("_headers")


def default_topic(topic: TopicName, group: str) -> TopicName:
    """``<topic>.<group>.dead-letter``. Raises InvalidArgument: too long for a name; then the user gives one."""
    name = f"{topic.name}.{group}.dead-letter"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidArgument(
            f"{name!r:.150} has more than {TOPIC_NAME_LENGTH_MAX} characters: give a shorter topic as dead_letter="
        )
    return TopicName(topic.namespace, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """One record, as it arrived, and why it is given up."""

    rows: Arrived
    """A single row."""
    group: str
    deliveries: int
    reason: str

    def table(self) -> pa.RecordBatch:
        """The record with its own columns, key and timestamp; headers ``dead-letter-...`` beside its own."""
        row = record_batch_of(self.rows)
        origin = self.rows.origin
        headers = [item for item in row.column("_headers")[0].as_py() or () if not item[0].startswith(PREFIX)]
        told = {
            "reason": self.reason[:REASON_LENGTH_MAX],
            "topic": origin.topic,
            "segment": origin.segment,
            "offset": self.rows.first_offset,
            "deliveries": self.deliveries,
            "group": self.group,
        }
        headers += [(PREFIX + name, str(value).encode()) for name, value in told.items()]
        columns = {name: row.column(name) for name in row.schema.names if name not in PLACE}
        columns["_headers"] = pa.array([headers], type=_HEADERS.type)
        return pa.RecordBatch.from_pydict(columns)


def letter_of(given_up: GivenUp[Message], group: str) -> DeadLetter:
    """A record that a group gives up. Requires that it is not acknowledged."""
    return DeadLetter(rows=row_of(given_up.record), group=group, deliveries=given_up.deliveries, reason=given_up.reason)


class DeadLetters:
    """Publishes to the dead-letter topic, which is created when the first record goes there."""

    def __init__(
        self,
        cluster: Cluster,
        config: ClientConfig,
        name: TopicName,
        source: Callable[[], Awaitable[TopicDescription]],
    ) -> None:
        """``source()`` awaits the description of the topic that is read."""
        self._cluster = cluster
        self._config = config
        self._name = name
        self._source = source
        self._opening: asyncio.Task[Publisher] | None = None

    async def keep(self, letter: DeadLetter) -> None:
        """Return when the record is kept there.

        Raises:
            SeaweedMQError: it can not be kept, such as for want of a column in a topic the user gave, or for want of
                brokers for ``read_retry_timeout_s`` and ``delivery_timeout_s``.
        """
        publisher = await self._publisher()
        await (await publisher.send_table(letter.table()))

    async def _publisher(self) -> Publisher:
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())
        return await asyncio.shield(self._opening)

    async def _open(self) -> Publisher:
        publisher = Publisher(
            self._cluster, self._name, self._config, asyncio.get_running_loop().call_soon, lambda _: None
        )
        async for attempt in retrying(self._config, self._cluster.env.rng, deadline(self._config.read_retry_timeout_s)):
            with attempt:
                try:
                    await self._cluster.describe(self._name, OPEN)
                except NotFound:
                    await self._create()
                await publisher.start()
        return publisher

    async def _create(self) -> None:
        topic = (await self._source()).topic
        spec = TopicSpec(name=self._name, replicas=topic.replicas, durability=topic.durability, schema=topic.schema)
        try:
            await self._cluster.call(f"create topic {self._name}", CreateTopics((spec,)))
        except AlreadyExists:
            log.info("another member created %s meanwhile", self._name)

    async def close(self) -> None:
        """Idempotent. What is being kept meanwhile is cancelled by its owner."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
        elif not opening.cancelled() and opening.exception() is None:
            await opening.result().close()
