"""Fetch: what partitions that are led here have for a consumer, by events and not by polling."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.broker.local import LocalBroker, LocalPartition
from seaweedmq.core.kafka.fetch_plan import ReplyShare
from seaweedmq.core.kafka.fetch_session import (
    Exchange,
    FetchSessions,
    PartitionKey,
    SessionProblem,
    SessionRefused,
    Told,
    Wanted,
)
from seaweedmq.errors import Corrupt, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.kafka.fetch_memory import FetchMemory, ReplyMemory
from seaweedmq.kafka.partitions import LeaderHint, Partitions, endpoints, key_of
from seaweedmq.kafka.reading import Batches, PartitionReader
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.failure import code_of
from seaweedmq.kafka.wire.fetch_reply import FetchedPartition, FetchedTopic, fetch_reply
from seaweedmq.kafka.wire.messages import API, Handler, Reply, Request
from seaweedmq.model.config import MIB

WAIT_S_MAX = 300.0
"""A client may ask for less."""
READ_S_MAX = 10.0
"""Of files, which may have to wait for memory. What was not read then is asked for again."""
REPLY_BYTES_MAX = 55 * MIB
"""Of one reply, as Kafka's ``fetch.max.bytes`` of brokers."""
PARTITIONS_AT_ONCE = 250
"""That are looked at before others get a turn."""
BY_ID_FROM = 13
"""Version from which topics are named by their ids."""
READ_COMMITTED = 1
NO_OFFSET = -1


@dataclass(slots=True)
class Fetched:
    """What is said of one partition."""

    partition: int
    error: Exception | None = None
    hint: LeaderHint | None = None
    high_watermark: int = NO_OFFSET
    log_start: int = NO_OFFSET
    batches: Batches | None = None
    source: LocalPartition | None = None

    @property
    def has_records(self) -> bool:
        return self.batches is not None and self.batches.size > 0

    @property
    def needs_reading(self) -> bool:
        """Whether another look may find more. What came from files is not read again, and what is in memory is: nobody
        has kept it since."""
        if self.batches is not None and self.batches.size:
            return not self.batches.from_files
        return self.source is None or self.is_old

    @property
    def is_old(self) -> bool:
        """Whether there may be more by now."""
        source = self.source
        return source is not None and (source.is_over or source.high_watermark != self.high_watermark)


class FetchRoom:
    """Answers Fetch."""

    def __init__(
        self, local: LocalBroker, partitions: Partitions, reader: PartitionReader, memory: FetchMemory
    ) -> None:
        self._partitions = partitions
        self._reader = reader
        self._memory = memory
        self._sessions = FetchSessions(lambda: local.env.rng.getrandbits(31))

    def handlers(self) -> dict[int, Handler]:
        """By the keys of the APIs."""
        return {API.FETCH: self.fetch}

    async def fetch(self, request: Request) -> Reply:
        """Wait until there are ``min_bytes`` of records, or an error, or ``max_wait_ms`` are over, or the reply holds
        up another one."""
        body, loop = request.body, asyncio.get_running_loop()
        try:
            exchange = self._begin(request, loop.time())
        except SessionRefused as refused:
            return fetch_reply(request.version, (), error_code=_OF_PROBLEM[refused.problem])
        deadline = loop.time() + min(max(body.max_wait_ms, 0) / 1000, WAIT_S_MAX)
        fetched: dict[PartitionKey, Fetched] = {}
        memory = self._memory.reply()
        try:
            while True:
                bytes_max = memory.reserve(min(max(body.max_bytes, 0), REPLY_BYTES_MAX))
                size = await self._gather(exchange.partitions, fetched, bytes_max)
                memory.hold(size)
                is_enough = size >= max(body.min_bytes, 0) or any(f.error for f in fetched.values())
                if is_enough or request.holds_up or not await _change(request, fetched, deadline):
                    break
            return _reply(request, exchange, fetched, memory)
        except BaseException:
            memory.release()
            raise

    def _begin(self, request: Request, now: float) -> Exchange:
        body = request.body
        wanted = {
            (key_of(topic.topic, topic.topic_id), part.partition): Wanted(
                part.fetch_offset, part.partition_max_bytes, part.current_leader_epoch
            )
            for topic in body.topics
            for part in topic.partitions
        }
        forgotten = [(key_of(t.topic, t.topic_id), p) for t in body.forgotten_topics_data for p in t.partitions]
        return self._sessions.begin(
            body.session_id, body.session_epoch, wanted, forgotten, now, by_id=request.version >= BY_ID_FROM
        )

    async def _gather(
        self, wanted: Mapping[PartitionKey, Wanted], fetched: dict[PartitionKey, Fetched], bytes_max: int
    ) -> int:
        """Read what there is now, and what was read from files before; return the bytes."""
        share = ReplyShare(bytes_max)
        for known in fetched.values():
            if known.batches is not None and known.batches.from_files:
                share.took(known.batches.size)
        for number, (key, want) in enumerate(wanted.items(), 1):
            before = fetched.get(key)
            if before is None or before.needs_reading:
                fetched[key] = await self._read(key, want, share)
            if number % PARTITIONS_AT_ONCE == 0:
                await asyncio.sleep(0)
        return share.taken

    async def _read(self, key: PartitionKey, want: Wanted, share: ReplyShare) -> Fetched:
        name, index = key
        said = Fetched(index)
        topic = None
        try:
            topic = self._partitions.topic(name)
            partition = self._partitions.led(topic, index, want.leader_epoch)
            said.source, said.high_watermark = partition, partition.high_watermark
            said.log_start = await partition.log_start()
            _check_offset(partition, want.offset, said.log_start)
            if want.offset < said.high_watermark:
                async with asyncio.timeout(READ_S_MAX):
                    said.batches = await self._reader.read(partition, want.offset, want.bytes_max, share)
        except SeaweedMQError as error:
            said.error, said.source = error, None
            said.high_watermark = said.log_start = NO_OFFSET
            said.hint = None if topic is None else self._partitions.hint(topic, index, error)
        except TimeoutError:
            said.error = Unavailable(
                f"partition {index}: its files could not be read within {READ_S_MAX:g} s: ask again"
            )
        return said


def _check_offset(partition: LocalPartition, offset: int, log_start: int) -> None:
    if not log_start <= offset <= partition.end:
        raise OutOfRange(
            f"offset {offset} of partition {partition.partition} of {partition.topic.name}: it holds {log_start} to "
            f"{partition.high_watermark}"
        )


async def _change(request: Request, fetched: Mapping[PartitionKey, Fetched], deadline: float) -> bool:
    """Wait until a partition has more than was seen of it, or the client asks something else. False: not before the
    deadline."""
    if any(f.is_old for f in fetched.values()):
        return asyncio.get_running_loop().time() < deadline
    try:
        async with asyncio.timeout_at(deadline):
            await request.line.grown.wait(*(f.source.changed for f in fetched.values() if f.source is not None))
    except TimeoutError:
        return False
    return True


_OF_PROBLEM = {
    SessionProblem.UNKNOWN: Code.FETCH_SESSION_ID_NOT_FOUND,
    SessionProblem.EPOCH: Code.INVALID_FETCH_SESSION_EPOCH,
    SessionProblem.NAMING: Code.FETCH_SESSION_TOPIC_ID_ERROR,
}


def _reply(request: Request, exchange: Exchange, fetched: Mapping[PartitionKey, Fetched], memory: ReplyMemory) -> Reply:
    topics: dict[str | bytes, list[FetchedPartition]] = {}
    hints = []
    for key, said in fetched.items():
        told = Told(said.high_watermark, said.log_start)
        if exchange.settle(key, told, has_records=said.has_records, has_error=said.error is not None):
            topics.setdefault(key[0], []).append(_partition(said, request.body.isolation_level))
            if said.hint is not None:
                hints.append(said.hint)
    return fetch_reply(
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


def _partition(said: Fetched, isolation_level: int) -> FetchedPartition:
    return FetchedPartition(
        index=said.partition,
        error_code=Code.NONE if said.error is None else _code_of(said.error),
        high_watermark=said.high_watermark,
        last_stable_offset=said.high_watermark,
        log_start_offset=said.log_start,
        aborted=() if isolation_level == READ_COMMITTED else None,
        records=() if said.batches is None else said.batches.buffers,
        leader_id=-1 if said.hint is None else said.hint.node.id,
        leader_epoch=-1 if said.hint is None else said.hint.epoch,
    )


def _code_of(error: Exception) -> Code:
    """The code of a failed read: a damaged file reaches the consumer's caller as lost records do."""
    return Code.CORRUPT_MESSAGE if isinstance(error, Corrupt) else code_of(error)
