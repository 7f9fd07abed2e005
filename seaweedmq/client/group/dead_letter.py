"""Records that could not be dealt with, however often they were delivered, go to a topic of their own."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.origin import row_of
from seaweedmq.client.publish.publisher import Publisher
from seaweedmq.client.retry import retrying
from seaweedmq.client.subscribe.messages import FetchedRows, Message, record_batch_of
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA
from seaweedmq.core.member.record_dispatch import GivenUp
from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound
from seaweedmq.model.config import KIB
from seaweedmq.model.description import OPEN, TopicDescription
from seaweedmq.model.messages.calls import CreateTopics
from seaweedmq.model.topic import TOPIC_NAME_LENGTH_MAX, TopicName, TopicSpec
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)

PREFIX = "dead-letter-"
REASON_LENGTH_MAX = 1_000
PLACE = frozenset({"_segment", "_partition", "_offset"})
"""Columns that say where a record was, and not what it is."""
LARGE_BYTES = 64 * KIB
"""Columns of more than this are left out of a letter that cannot be kept whole."""
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

    rows: FetchedRows
    """A single row."""
    group: str
    deliveries: int
    reason: str

    def tables(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The record in forms of falling size, each with the parts that it leaves out: a record that just fits a frame
        does not with more headers, and one of Kafka's clients may be unpacked larger than any frame.

        The first has the record's own columns, key and timestamp, and headers ``dead-letter-...`` beside its own.
        """
        row = record_batch_of(self.rows)
        told = self._told()
        yield "", self._table(row, told)
        del told["reason"]
        yield "the reason", self._table(row, told)
        yield "its timestamp and the headers of the dead letter", self._table(row.drop_columns(["_timestamp"]), {})
        large = [
            field.name
            for field, column in zip(row.schema, row.columns, strict=True)
            if column.nbytes > LARGE_BYTES and field.nullable
        ]
        told["left-out"] = ", ".join(f"{name} ({row.column(name).nbytes} bytes)" for name in large)
        yield str(told["left-out"]), self._table(_emptied(row, large), told)

    def _told(self) -> dict[str, object]:
        origin = self.rows.origin
        return {
            "reason": self.reason[:REASON_LENGTH_MAX],
            "topic": origin.topic,
            "segment": origin.segment,
            "offset": self.rows.first_offset,
            "deliveries": self.deliveries,
            "group": self.group,
        }

    def _table(self, row: pa.RecordBatch, told: Mapping[str, object]) -> pa.RecordBatch:
        """Columns that are null of every plain record are left out, as publishers do."""
        headers = [item for item in row.column("_headers")[0].as_py() or () if not item[0].startswith(PREFIX)]
        headers += [(PREFIX + name, str(value).encode()) for name, value in told.items()]
        columns = {name: row.column(name) for name in row.schema.names if name not in PLACE}
        columns["_headers"] = pa.array([headers], type=_HEADERS.type)
        if not headers:
            del columns["_headers"]
        if not columns["_key"][0].is_valid:
            del columns["_key"]
        return pa.RecordBatch.from_pydict(columns)

    def __str__(self) -> str:
        origin = self.rows.origin
        return f"the record at offset {self.rows.first_offset} of {origin.topic}#{origin.segment}"


def _emptied(row: pa.RecordBatch, names: Collection[str]) -> pa.RecordBatch:
    columns = {
        name: pa.nulls(1, column.type) if name in names else column
        for name, column in zip(row.schema.names, row.columns, strict=True)
    }
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
        tried = list(letter.tables())
        for number, (left_out, table) in enumerate(tried, 1):
            sent = await publisher.send_table(table)
            try:
                await sent
            except InvalidArgument as error:
                # Too large for a frame: columns that do not fit the topic are rejected by send_table.
                if number == len(tried):
                    raise
                log.info("%s does not fit into %s whole: %s", letter, self._name, error)
                continue
            if left_out:
                reason = letter.reason[:REASON_LENGTH_MAX]
                log.warning("%s is in %s without %s: given up for: %s", letter, self._name, left_out, reason)
            return

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
