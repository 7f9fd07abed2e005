"""Kafka consumers that read partitions by offsets from the current leaders, with fetch sessions or without."""

import asyncio
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from aiokafka.record.default_records import DefaultRecordBatch

from seaweedmq.codec.kafka.header import read_header
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.kafka.wire.messages import API, FetchRequest, ListOffsetsRequest
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.topic import TopicName
from tests.sim.rules.kafka import Watermarks
from tests.sim.users.kafka_client import REPLY_TIMEOUT_S, KafkaClient, Leader, Refused
from tests.sim.users.workload import Reader
from tests.support.history import History, Violation

if TYPE_CHECKING:
    from tests.sim.world import World

FETCH_VERSIONS = (11, 12, 16)
TOPIC_IDS_FROM = 13
LOOK_AGAIN_S = 0.1
WAIT_S = 0.2
METADATA_AGE_S = 0.5
RETRY_S = 0.05
LATEST, EARLIEST = -1, -2
REWIND_SHARE = 0.02
"""Share of a reader's polls after which it restarts from the beginning."""
REWINDS_MAX = 3
ASK_AGAIN = frozenset(
    {
        Code.NOT_LEADER_OR_FOLLOWER, Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID, Code.FENCED_LEADER_EPOCH,
        Code.UNKNOWN_LEADER_EPOCH, Code.LEADER_NOT_AVAILABLE, Code.KAFKA_STORAGE_ERROR,
    }
)  # fmt: skip
"""Errors after which consumers refresh the metadata."""


class Got(NamedTuple):
    """A received record."""

    partition: int
    offset: int
    segment: int
    key: bytes
    value: bytes


class _Asked(NamedTuple):
    offset: int
    epoch: int
    floor: int


@dataclass(slots=True)
class _Session:
    id: int = 0
    epoch: int = 0
    known: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Partition -> offset and leader epoch, as the broker knows them."""


class Fetcher:
    """The positions of one consumer in a topic."""

    def __init__(self, client: KafkaClient, topic: TopicName, marks: Watermarks, *, follows_all: bool) -> None:
        """Create a fetcher. ``follows_all``: it also reads new partitions, from their beginning."""
        self.positions: dict[int, int] = {}
        self._client = client
        self._topic = topic
        self._marks = marks
        self._follows_all = follows_all
        self._rng = client.rng
        self._version = self._rng.choice(FETCH_VERSIONS)
        self._bytes_max = self._rng.choice((200, 2_000, 1 << 20))
        self._partition_bytes_max = self._rng.choice((100, 1_000, 1 << 20))
        self._has_sessions = self._rng.random() < 0.6
        self._sessions: dict[int, _Session] = {}
        self._epochs: dict[int, int] = {}
        """Leader epoch of the last batch of each partition."""
        self._fresh_until_s = 0.0

    async def poll(self) -> list[Got]:
        """Return the next records of all partitions, or nothing after a while without records."""
        client, loop = self._client, self._client.world.loop
        try:
            if loop.time() >= self._fresh_until_s:
                await self.refresh()
        except SeaweedMQError as error:
            client.world.note(client.owner.name, f"no metadata: {error}")
            await asyncio.sleep(RETRY_S)
        by_node: dict[int, dict[int, Leader]] = {}
        for partition in self.positions:
            leader = client.leaders.get(partition)
            if leader is not None and leader.node >= 0:
                by_node.setdefault(leader.node, {})[partition] = leader
        if not by_node:
            self._fresh_until_s = 0.0
            await asyncio.sleep(RETRY_S)
            return []
        found = await asyncio.gather(*(self._fetch(node, leaders) for node, leaders in by_node.items()))
        return [record for of_node in found for record in of_node]

    async def refresh(self) -> None:
        """Refresh the metadata. Raises as ``KafkaClient.refresh``."""
        await self._client.refresh(self._topic.name)
        self._fresh_until_s = self._client.world.loop.time() + METADATA_AGE_S
        if self._follows_all:
            for partition in self._client.leaders:
                self.positions.setdefault(partition, 0)

    async def _fetch(self, node: int, leaders: dict[int, Leader]) -> list[Got]:
        world, name = self._client.world, self._client.owner.name
        asked = {
            partition: _Asked(self.positions[partition], leader.epoch, self._marks.floor(partition, leader.epoch))
            for partition, leader in leaders.items()
        }
        try:
            reply = await self._ask(node, asked)
            return [record for part in _parts(reply) for record in self._take(part, asked)]
        except SeaweedMQError as error:
            world.note(name, f"fetches again: {error}")
            self._sessions.pop(node, None)
            self._fresh_until_s = 0.0
            await asyncio.sleep(self._rng.uniform(0, RETRY_S))
            return []

    async def _ask(self, node: int, asked: dict[int, _Asked]) -> Any:
        session = self._sessions.setdefault(node, _Session()) if self._has_sessions else None
        wanted = {partition: (a.offset, a.epoch) for partition, a in asked.items()}
        news, gone = wanted, list[int]()
        if session is not None and session.id:
            news = {p: place for p, place in wanted.items() if session.known.get(p) != place}
            gone = [p for p in session.known if p not in wanted]
        named = self._named()
        make = FetchRequest.FetchTopic
        parts = [
            make.FetchPartition(
                partition=partition,
                fetch_offset=offset,
                current_leader_epoch=epoch,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=self._partition_bytes_max,
            )
            for partition, (offset, epoch) in news.items()
        ]
        reply = await self._client.connection(node, "fetch").ask(
            API.FETCH,
            self._version,
            timeout_s=REPLY_TIMEOUT_S,
            replica_id=-1,
            max_wait_ms=int(1_000 * WAIT_S),
            min_bytes=1,
            max_bytes=self._bytes_max,
            isolation_level=0,
            session_id=session.id if session is not None else 0,
            session_epoch=session.epoch if session is not None else -1,
            topics=[make(**named, partitions=parts)] if parts else [],
            forgotten_topics_data=[FetchRequest.ForgottenTopic(**named, partitions=gone)] if gone else [],
            rack_id="",
        )
        if reply.error_code:
            raise Refused(reply.error_code, "the session")
        if session is not None:
            session.known = wanted
            session.epoch = session.epoch + 1 if reply.session_id else 0
            session.id = reply.session_id
        for endpoint in reply.node_endpoints or () if self._version >= 16 else ():
            self._client.note_node(endpoint.node_id, f"{endpoint.host}:{endpoint.port}")
        return reply

    def _named(self) -> dict[str, Any]:
        if self._version < TOPIC_IDS_FROM:
            return {"topic": self._topic.name}
        return {"topic_id": self._client.topic_id}

    def _take(self, part: Any, asked: dict[int, _Asked]) -> Iterator[Got]:
        partition, who = part.partition_index, self._client.owner.name
        code = Code(part.error_code)
        if code is not Code.NONE:
            self._fresh_until_s = 0.0
            leader = part.current_leader if self._version >= 12 else None
            if leader is not None and leader.leader_id >= 0:
                self._client.learn(partition, leader.leader_id, leader.leader_epoch)
            if code not in ASK_AGAIN:
                told = f"{who} heard {code.name} of partition {partition}, {asked[partition]}"
                self._client.world.violations.append(Violation("reader gave up", told))
            return
        offset, epoch, floor = asked[partition]
        self._marks.told(who, partition, epoch, part.high_watermark, floor)
        if self.positions.get(partition) != offset:
            return
        for got in self._records(partition, bytes(part.records or b"")):
            if got.offset < offset:
                continue
            if got.offset != offset or got.offset >= part.high_watermark:
                told = f"{who} got {partition}:{got.offset}, {offset} was next, and {part.high_watermark} the end"
                self._client.world.violations.append(Violation("gap", told))
            offset = got.offset + 1
            self.positions[partition] = offset
            yield got

    def _records(self, partition: int, data: bytes) -> Iterator[Got]:
        at = 0
        while at < len(data):
            header = read_header(memoryview(data)[at:])
            batch = DefaultRecordBatch(bytearray(data[at : at + header.size_bytes]))
            assert batch.validate_crc()
            at += header.size_bytes
            epoch = header.leader_epoch
            if epoch < self._epochs.get(partition, epoch):
                told = f"{self._client.owner.name} got partition {partition} of epoch {epoch} after later ones"
                self._client.world.violations.append(Violation("offsets fall", told))
            self._epochs[partition] = epoch
            for record in batch:
                yield Got(partition, record.offset, epoch, record.key or b"", record.value or b"")


def _parts(reply: Any) -> list[Any]:
    return [part for topic in reply.responses for part in topic.partitions]


async def ends_of(client: KafkaClient, topic: TopicName) -> dict[int, int]:
    """Return every partition's high watermark from its leader. Raises as ``Connection.ask``; Refused."""
    await client.refresh(topic.name)
    ends: dict[int, int] = {}
    make = ListOffsetsRequest.ListOffsetsTopic
    for partition, leader in sorted(client.leaders.items()):
        part = make.ListOffsetsPartition(partition_index=partition, current_leader_epoch=leader.epoch, timestamp=LATEST)
        if leader.node < 0:
            raise Unavailable(f"partition {partition} has no leader")
        reply = await client.connection(leader.node, "fetch").ask(
            API.LIST_OFFSETS, 7, replica_id=-1, isolation_level=0, topics=[make(name=topic.name, partitions=[part])]
        )
        said = reply.topics[0].partitions[0]
        if said.error_code:
            raise Refused(said.error_code, f"the end of partition {partition}")
        ends[partition] = said.offset
    return ends


class KafkaReader(Reader):
    """A reader of a topic from its beginning that notes received records, and restarts at times."""

    def __init__(self, world: "World", name: str, topic: str, history: History) -> None:
        super().__init__(world, name, topic, history)
        self._rng = world.rng(name)
        self._lives = itertools.count(2)
        self._ends: dict[int, int] | None = None

    async def run(self, *, stop_at: str | None = None) -> None:
        """Read until cancelled, or with ``stop_at="latest"`` until all records present now were read."""
        client = KafkaClient(self.world, self.owner, self._rng)
        try:
            if stop_at is not None:
                self._ends = await self._known_ends(client)
            rewinds = 0 if stop_at is not None else self._rng.randint(0, REWINDS_MAX)
            while await self._live(client, rewinds > 0):
                rewinds -= 1
                self.life = f"{self.name}'{next(self._lives)}"
        finally:
            client.close()
        self.world.note(self.name, f"read to the end, {len(self.places)} records")

    async def _known_ends(self, client: KafkaClient) -> dict[int, int]:
        while True:
            try:
                return await ends_of(client, self._topic)
            except SeaweedMQError as error:
                self.world.note(self.name, f"does not know the end yet: {error}")
                await asyncio.sleep(LOOK_AGAIN_S)

    async def _live(self, client: KafkaClient, may_rewind: bool) -> bool:
        """Whether to restart from the beginning; False: it read all records."""
        fetcher = Fetcher(client, self._topic, self.world.watermarks, follows_all=True)
        while not self._is_at_end(fetcher.positions):
            for got in await fetcher.poll():
                self.take(got.segment, got.offset, got.key, got.value, got.partition)
            if may_rewind and self._rng.random() < REWIND_SHARE:
                return True
            if self._rng.random() < 0.1:
                await asyncio.sleep(self._rng.uniform(0, 0.5))
        return False

    def _is_at_end(self, positions: dict[int, int]) -> bool:
        ends = self._ends
        return ends is not None and all(positions.get(p, 0) >= end for p, end in ends.items())
