"""Handler of Fetch, which waits for records by events and does not poll."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from seaweedmq.broker.local import LocalPartition
from seaweedmq.core.kafka.fetch_budget import FetchBudget
from seaweedmq.core.kafka.fetch_session import (
    Exchange,
    FetchSessions,
    PartitionKey,
    RequestedPartition,
    SentPartition,
    SessionProblem,
    SessionRejected,
)
from seaweedmq.core.kafka.fetch_wait import FetchWait
from seaweedmq.errors import OutOfRange, SeaweedMQError, Unavailable, unraised
from seaweedmq.kafka.data.fetch_memory import REPLY_BYTES_MAX, FetchMemory, ReplyMemory
from seaweedmq.kafka.data.partition_reader import Batches, PartitionReader
from seaweedmq.kafka.metadata.partition_lookup import NO_EPOCH, LeaderHint, PartitionLookup, endpoints, key_of
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import ErrorScope, code_of
from seaweedmq.kafka.wire.messages import API, Handler, Reply, Request
from seaweedmq.kafka.wire.replies.fetch_reply import FetchedPartition, FetchedTopic, fetch_reply
from seaweedmq.kafka.wire.replies.freeing import free
from seaweedmq.runtime.log_once import RejectionLog
from seaweedmq.runtime.signal import Signal
from seaweedmq.runtime.time_limit import TimeLimit
from seaweedmq.runtime.turns import Turn

log = logging.getLogger(__name__)

WAIT_S_MAX = 300.0
"""Maximum wait of a Fetch, in seconds; a client may request less."""
READ_S_MAX = 10.0
"""Seconds to read one partition, which may wait for memory; the client requests unread records again."""
LARGE_PARTITIONS = 5_000
"""Number of partitions from which a reply is assembled in a thread."""
BY_ID_FROM = 13
"""Version from which requests name topics by their ids."""
READ_COMMITTED = 1
NO_OFFSET = -1
_MISSING = frozenset({Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID})


@dataclass(slots=True)
class Fetched:
    """The part of a reply for one partition."""

    partition: int
    want: RequestedPartition
    error: Exception | None = None
    hint: LeaderHint | None = None
    high_watermark: int = NO_OFFSET
    log_start: int = NO_OFFSET
    batches: Batches | None = None
    source: LocalPartition | None = None
    readable_bytes: int = 0
    """Bytes from the requested offset to ``counted_to``, up to the limit of the reply."""
    counted_to: int = NO_OFFSET

    @property
    def has_records(self) -> bool:
        """Whether records were read."""
        return self.batches is not None and self.batches.size > 0

    @property
    def is_old(self) -> bool:
        """Whether the partition changed since it was looked up."""
        source = self.source
        return source is not None and (source.is_over or source.high_watermark != self.high_watermark)

    @property
    def ends_wait(self) -> bool:
        """Whether the partition has an error that ends the wait.

        A partition that does not exist does not end it: else a consumer with a deleted partition would send requests
        without a pause.
        """
        return self.error is not None and code_of(self.error, place=ErrorScope.FETCH) not in _MISSING

    def count(self) -> None:
        """Count the bytes committed since the last call, without reading them."""
        source, bytes_max = self.source, max(self.want.bytes_max, 1)
        while source is not None and self.counted_to < source.high_watermark and self.readable_bytes < bytes_max:
            entries = source.in_memory(self.counted_to, bytes_max - self.readable_bytes)
            if entries is None:  # in files: large, or old enough to send
                self.readable_bytes = REPLY_BYTES_MAX
                return
            self.readable_bytes += sum(len(entry.payload) for entry in entries)
            self.counted_to = entries[-1].end_offset
            if self.counted_to < source.high_watermark:  # the next frame would exceed the limit
                self.readable_bytes = max(self.readable_bytes, bytes_max)


class FetchHandlers:
    """Handler of Fetch."""

    def __init__(
        self, partitions: PartitionLookup, reader: PartitionReader, memory: FetchMemory, rng: random.Random
    ) -> None:
        self._partitions = partitions
        self._reader = reader
        self._memory = memory
        self._sessions = FetchSessions(lambda: rng.getrandbits(31))
        self._rejections = RejectionLog(log, "partitions of Kafka fetches")

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by API key."""
        return {API.FETCH: self.fetch}

    async def fetch(self, request: Request) -> Reply:
        """Wait for records, then read them once.

        The wait ends at ``min_bytes`` of records, an error, ``max_wait_ms``, or when the reply holds up another one. A
        waiting Fetch holds no records.
        """
        body, loop = request.body, asyncio.get_running_loop()
        try:
            exchange = await self._begin(request)
        except SessionRejected as refused:
            return fetch_reply(request.version, (), error_code=_OF_PROBLEM[refused.problem])
        deadline = loop.time() + min(max(body.max_wait_ms, 0) / 1000, WAIT_S_MAX)
        bytes_max = min(max(body.max_bytes, 0), REPLY_BYTES_MAX)
        fetched: dict[PartitionKey, Fetched] = {}
        for key, want in exchange.partitions.items():
            fetched[key] = await self._look(key, want)
            await request.turn.pause()
        if body.max_wait_ms > 0:
            await self._wait(request, fetched, FetchWait(max(body.min_bytes, 0), bytes_max), deadline)
        memory = self._memory.reply(request.line.press)
        try:
            memory.hold(await self._gather(fetched, memory.reserve(bytes_max), memory, request.turn))
            reply = await _reply(request, exchange, fetched, memory)
        except BaseException:
            memory.release()
            raise
        if len(fetched) >= LARGE_PARTITIONS:
            await free(fetched, request.turn)
        return reply

    async def _begin(self, request: Request) -> Exchange:
        body, by_id = request.body, request.version >= BY_ID_FROM
        wanted: dict[PartitionKey, RequestedPartition] = {}
        for topic in body.topics:
            key = key_of(topic.topic, topic.topic_id, by_id=by_id)
            for part in topic.partitions:
                wanted[key, part.partition] = RequestedPartition(
                    part.fetch_offset, part.partition_max_bytes, max(part.current_leader_epoch, NO_EPOCH)
                )
                await request.turn.pause()
        forgotten: list[PartitionKey] = []
        for topic in body.forgotten_topics_data:
            key = key_of(topic.topic, topic.topic_id, by_id=by_id)
            for number in topic.partitions:
                forgotten.append((key, number))
                await request.turn.pause()
        now = asyncio.get_running_loop().time()
        return self._sessions.begin(body.session_id, body.session_epoch, wanted, forgotten, now, by_id=by_id)

    async def _wait(
        self,
        request: Request,
        fetched: dict[PartitionKey, Fetched],
        wait: FetchWait[PartitionKey],
        deadline: float,
    ) -> None:
        """Wait until the reply has enough records or is due."""
        poll = _Poll(request, fetched, wait)
        try:
            await poll.listen()
            await TimeLimit(self._until_over(poll, fetched), deadline)
        except TimeoutError:
            return
        finally:
            poll.close()

    async def _until_over(self, poll: "_Poll", fetched: Mapping[PartitionKey, Fetched]) -> None:
        while not poll.is_over:
            await poll.changed()
            for key in poll.ended():  # this broker may lead the successor
                poll.replace(key, await self._look(key, fetched[key].want))

    async def _look(self, key: PartitionKey, want: RequestedPartition) -> Fetched:
        """Find the partition and check the offset, without reading."""
        name, index = key
        said = Fetched(index, want)
        topic = None
        try:
            topic = self._partitions.topic(name)
            partition = self._partitions.led(topic, index, want.leader_epoch)
            said.source, said.high_watermark = partition, partition.high_watermark
            said.log_start = await partition.log_start()
            _check_offset(partition, want.offset, said.log_start)
            said.counted_to = want.offset
        except SeaweedMQError as error:
            self._fail(said, topic, error)
        return said

    def _fail(self, said: Fetched, topic: PartitionedTopic | None, error: SeaweedMQError) -> None:
        if isinstance(error, Unavailable):
            self._rejections.add(error)
        said.error, said.source = unraised(error), None
        said.high_watermark = said.log_start = NO_OFFSET
        said.hint = None if topic is None else self._partitions.hint(topic, said.partition, error)

    async def _gather(
        self, fetched: dict[PartitionKey, Fetched], bytes_max: int, memory: ReplyMemory, turn: Turn
    ) -> int:
        """Read the committed records; return their bytes."""
        share = FetchBudget(bytes_max)
        for key, said in fetched.items():
            await turn.pause()  # before the read: one commit may have woken a thousand consumers
            if said.is_old:
                said = fetched[key] = await self._look(key, said.want)
            if said.source is not None and said.want.offset < said.high_watermark:
                await self._read(key, said, share, memory)
        return share.taken

    async def _read(self, key: PartitionKey, said: Fetched, share: FetchBudget, memory: ReplyMemory) -> None:
        assert said.source is not None
        topic = None
        try:
            topic = self._partitions.topic(key[0])
            reading = self._reader.read(said.source, said.want.offset, said.want.bytes_max, share, memory)
            said.batches = await TimeLimit(reading, asyncio.get_running_loop().time() + READ_S_MAX)
        except SeaweedMQError as error:
            self._fail(said, topic, error)
        except TimeoutError:
            said.error = Unavailable(
                f"records of partition {said.partition} of {said.source.topic.name} were not read within "
                f"{READ_S_MAX:g} s: the storage is slow, or slow consumers hold kafka_fetch_bytes_max: retry"
            )
            self._rejections.add(said.error)


class _Poll:
    """A waiting Fetch. Each commit of a partition is counted at once; only the one that ends the wait wakes a task."""

    def __init__(self, request: Request, fetched: dict[PartitionKey, Fetched], wait: FetchWait[PartitionKey]) -> None:
        self._request = request
        self._fetched = fetched
        self._wait = wait
        self._woken = asyncio.Event()
        self._listening: dict[PartitionKey, tuple[Signal, Callable[[], None]]] = {}
        self._ended: set[PartitionKey] = set()
        self._failed: set[PartitionKey] = set()
        """Partitions whose error ends the wait."""
        request.line.grown.listen(self._grown)

    async def listen(self) -> None:
        """Count every partition, now and at each commit."""
        for key in self._fetched:
            self._listen(key)
            await self._request.turn.pause()

    @property
    def is_over(self) -> bool:
        """Whether the reply is due.

        It is due for an error, enough records, another reply behind it, or if no partition can get any records.
        """
        return self._request.holds_up or self._wait.is_enough or not self._listening or bool(self._failed)

    async def changed(self) -> None:
        """Wait for an event that may end the wait."""
        await self._woken.wait()
        self._woken.clear()

    def ended(self) -> list[PartitionKey]:
        """Return the partitions whose segments ended since the last call."""
        ended, self._ended = self._ended, set()
        return [key for key in self._fetched if key in ended] if ended else []

    def replace(self, key: PartitionKey, said: Fetched) -> None:
        """Replace a partition by its repeated lookup."""
        self._unlisten(key)
        self._fetched[key] = said
        self._listen(key)

    def close(self) -> None:
        """Remove all listeners."""
        self._request.line.grown.unlisten(self._grown)
        for key in tuple(self._listening):
            self._unlisten(key)

    def _listen(self, key: PartitionKey) -> None:
        said = self._fetched[key]
        source = said.source
        if said.ends_wait:
            self._failed.add(key)
        if source is None:
            self._wait.count(key, 0)
            return
        heard = partial(self._committed, key)
        self._listening[key] = source.changed, heard
        source.changed.listen(heard)
        heard()

    def _unlisten(self, key: PartitionKey) -> None:
        if key in self._listening:
            signal, heard = self._listening.pop(key)
            signal.unlisten(heard)

    def _committed(self, key: PartitionKey) -> None:
        said = self._fetched[key]
        if said.source is not None and said.source.is_over:
            self._ended.add(key)
            self._woken.set()
            return
        said.count()
        self._wait.count(key, said.readable_bytes)
        if self._wait.is_enough:
            self._woken.set()

    def _grown(self) -> None:
        if self._request.holds_up:
            self._woken.set()


def _check_offset(partition: LocalPartition, offset: int, log_start: int) -> None:
    if not log_start <= offset <= partition.end:
        raise OutOfRange(
            f"offset {offset} of partition {partition.partition} of {partition.topic.name} is out of range: it has "
            f"{log_start} to {partition.high_watermark}"
        )


_OF_PROBLEM = {
    SessionProblem.UNKNOWN: Code.FETCH_SESSION_ID_NOT_FOUND,
    SessionProblem.EPOCH: Code.INVALID_FETCH_SESSION_EPOCH,
    SessionProblem.NAMING: Code.FETCH_SESSION_TOPIC_ID_ERROR,
}


async def _reply(
    request: Request, exchange: Exchange, fetched: Mapping[PartitionKey, Fetched], memory: ReplyMemory
) -> Reply:
    topics: dict[str | bytes, list[FetchedPartition]] = {}
    hints, count = [], 0
    for key, said in fetched.items():
        told = SentPartition(said.high_watermark, said.log_start)
        if exchange.settle(key, told, has_records=said.has_records, has_error=said.error is not None):
            topics.setdefault(key[0], []).append(_partition(said, request.body.isolation_level))
            count += 1
            if said.hint is not None:
                hints.append(said.hint)
        await request.turn.pause()
    make = partial(
        fetch_reply,
        request.version,
        [
            FetchedTopic(name=key, partitions=parts)
            if isinstance(key, str)
            else FetchedTopic(topic_id=key, partitions=parts)
            for key, parts in topics.items()
        ],
        session_id=exchange.session_id,
        endpoints=endpoints(hints),
        sent=memory.release,
    )
    if count < LARGE_PARTITIONS:
        return make()
    reply = await asyncio.to_thread(make)
    for parts in topics.values():
        await free(parts, request.turn)
    return reply


def _partition(said: Fetched, isolation_level: int) -> FetchedPartition:
    return FetchedPartition(
        index=said.partition,
        error_code=Code.NONE if said.error is None else code_of(said.error, place=ErrorScope.FETCH),
        high_watermark=said.high_watermark,
        last_stable_offset=said.high_watermark,
        log_start_offset=said.log_start,
        aborted=() if isolation_level == READ_COMMITTED else None,
        records=() if said.batches is None else said.batches.buffers,
        leader_id=-1 if said.hint is None else said.hint.node.id,
        leader_epoch=-1 if said.hint is None else said.hint.epoch,
    )
