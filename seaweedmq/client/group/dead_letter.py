"""Dead letters: records that exceed ``max_deliveries`` go to a separate topic."""

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
from seaweedmq.codec.references import KAFKA_HEADER, REFERENCE, reference_json, reference_of
from seaweedmq.core.member.record_dispatch import DeadRecord
from seaweedmq.errors import AlreadyExists, InvalidArgument, NotFound
from seaweedmq.model.config import KIB
from seaweedmq.model.description import OPEN, TopicDescription
from seaweedmq.model.messages.calls import CreateTopics
from seaweedmq.model.topic import TOPIC_NAME_LENGTH_MAX, TopicName, TopicSpec
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)

PREFIX = "dead-letter-"
"""Prefix of the headers that describe a dead letter."""
REASON_LENGTH_MAX = 1_000
"""Limit of the reason in the header, in characters."""
PLACE = frozenset({"_segment", "_partition", "_offset"})
"""Columns with the location of a record, which are not part of it."""
LARGE_BYTES = 64 * KIB
"""Size above which a column is left out of a dead letter that cannot be stored whole."""
_HEADERS = PLAIN_SCHEMA.field("_headers")


def default_topic(topic: TopicName, group: str) -> TopicName:
    """Return ``<topic>.<group>.dead-letter``; InvalidArgument if that is too long for a name."""
    name = f"{topic.name}.{group}.dead-letter"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        raise InvalidArgument(
            f"{name!r:.150} has more than {TOPIC_NAME_LENGTH_MAX} characters: set a shorter topic with dead_letter="
        )
    return TopicName(topic.namespace, name)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """A record as it arrived, with the reason why it is dead."""

    rows: FetchedRows
    """A single row."""
    group: str
    """The group that read it."""
    deliveries: int
    """The number of its deliveries."""
    reason: str
    """The reason of the last failure."""

    def tables(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the record in forms of decreasing size, each with the name of the parts that it leaves out.

        A record that just fits a frame does not fit with more headers, and a decompressed record of a Kafka client may
        exceed any frame. The first form has the record's columns, key and timestamp, and headers ``dead-letter-...``
        besides its own.
        """
        row = record_batch_of(self.rows)
        properties = self._properties()
        yield "", self._table(row, properties)
        del properties["reason"]
        yield "the reason", self._table(row, properties)
        yield "its timestamp and the headers of the dead letter", self._table(row.drop_columns(["_timestamp"]), {})
        large = [
            field.name
            for field, column in zip(row.schema, row.columns, strict=True)
            if column.nbytes > LARGE_BYTES and field.nullable
        ]
        properties["left-out"] = ", ".join(f"{name} ({row.column(name).nbytes} bytes)" for name in large)
        yield str(properties["left-out"]), self._table(_emptied(row, large), properties)

    def _properties(self) -> dict[str, object]:
        origin = self.rows.origin
        return {
            "reason": self.reason[:REASON_LENGTH_MAX],
            "topic": origin.topic,
            "segment": origin.segment,
            "offset": self.rows.first_offset,
            "deliveries": self.deliveries,
            "group": self.group,
        }

    def _table(self, row: pa.RecordBatch, properties: Mapping[str, object]) -> pa.RecordBatch:
        """Build the table without null ``_key`` and ``_headers`` columns, as publishers do."""
        headers = [item for item in row.column("_headers")[0].as_py() or () if not item[0].startswith(PREFIX)]
        headers += [(PREFIX + name, str(value).encode()) for name, value in properties.items()]
        columns = {name: row.column(name) for name in row.schema.names if name not in PLACE}
        reference = reference_of(columns.pop(REFERENCE.name)[0].as_py()) if REFERENCE.name in columns else None
        if reference is not None:  # In another topic nothing resolves it.
            columns["_value"] = pa.array([reference_json(reference)], pa.binary())
            headers = [*(item for item in headers if item[0] != KAFKA_HEADER), (KAFKA_HEADER, b"1")]
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


def letter_of(given_up: DeadRecord[Message], group: str) -> DeadLetter:
    """Make the dead letter of a record. Requires that the record is not acknowledged."""
    return DeadLetter(rows=row_of(given_up.record), group=group, deliveries=given_up.deliveries, reason=given_up.reason)


class DeadLetters:
    """A publisher to the dead-letter topic, which is created for the first dead letter."""

    def __init__(
        self, cluster: Cluster, config: ClientConfig, name: TopicName, source: Callable[[], Awaitable[TopicDescription]]
    ) -> None:
        """Make a publisher that opens on first use; ``source`` describes the topic that the group reads."""
        self._cluster = cluster
        self._config = config
        self._name = name
        self._source = source
        self._opening: asyncio.Task[Publisher] | None = None

    async def keep(self, letter: DeadLetter) -> None:
        """Publish a dead letter, and return when it is acknowledged.

        It fails if a topic named by the user lacks a column, or brokers are unreachable for ``read_retry_timeout_s``
        and ``delivery_timeout_s``.
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
                log.info("dead letter too large: %s in %s: %s; retrying without a part", letter, self._name, error)
                continue
            if left_out:
                reason = letter.reason[:REASON_LENGTH_MAX]
                log.warning("dead letter incomplete: %s is in %s without %s: %s", letter, self._name, left_out, reason)
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
            log.info("dead-letter topic exists: another member created %s", self._name)

    async def close(self) -> None:
        """Close the publisher. Idempotent. The owner cancels calls of :meth:`keep`."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
            await asyncio.wait({opening})
        elif not opening.cancelled() and opening.exception() is None:
            await opening.result().close()
