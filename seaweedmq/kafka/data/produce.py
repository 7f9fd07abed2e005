"""Handler of Produce, which appends batches in order and replies once they are committed."""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial
from typing import Any, NamedTuple

from seaweedmq.broker.local import LocalPartition
from seaweedmq.broker.ports import BrokerRuntime
from seaweedmq.codec.frame import HEADER_BYTES as FRAME_HEADER_BYTES
from seaweedmq.codec.kafka.batch import (
    ALIGNMENT,
    CALENDAR_MS,
    CheckedBatch,
    check_batch,
    frame_of_batch,
    with_append_time,
)
from seaweedmq.codec.kafka.batch_errors import BatchErrorCode, InvalidBatch
from seaweedmq.codec.kafka.compression import NONE
from seaweedmq.codec.kafka.header import BatchHeader, read_header
from seaweedmq.codec.kafka.records import HEADERS_OF_RECORD_MAX, TooManyHeaders
from seaweedmq.core.kafka.rejected_sequences import RejectedSequences
from seaweedmq.errors import (
    DeadlineExceeded,
    OutOfOrderSequence,
    SeaweedMQError,
    Unavailable,
    fresh,
)
from seaweedmq.kafka.metadata.partition_lookup import LeaderHint, PartitionLookup, endpoints, key_of
from seaweedmq.kafka.metadata.topic_directory import PartitionedTopic
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.messages import API, Handler, Reply, Request
from seaweedmq.kafka.wire.replies.produce_reply import ProducedPartition, ProducedTopic, produce_reply
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.topic_settings import TimestampType, TopicSettings
from seaweedmq.runtime.later import Later
from seaweedmq.runtime.one_at_a_time import OneAtATime
from seaweedmq.runtime.time_limit import TimeLimit
from seaweedmq.runtime.turns import Turn, in_turns

BY_ID_FROM = 13
"""Version from which requests name topics by their ids."""
TIMEOUT_S_MAX = 300.0
"""Maximum wait of a Produce, in seconds; a client may request less."""
MEMORY_S_MIN = 1.0
"""Minimum wait for memory for a batch, in seconds.

``timeout_ms`` is the client's limit for other replicas, and may be 0. In Apache Kafka, the leader's own work does not
count against it.
"""
ALONE_S_MIN = 30.0
"""Minimum wait for the commit of a batch without followers, in seconds.

The batch is already appended, and after an error clients would repeat it.
"""
QUICK_BYTES, QUICK_RECORDS = 2 * MIB, 2_500
"""Size up to which an uncompressed batch is checked on the event loop, in one or two milliseconds.

Others are checked in a thread, so that no client waits for the decompression of another one's batch. The thread doubles
the cost of the check (for 1 MB of 1 KB records, a quarter of the broker's whole cost).
"""
QUICK_HEADERS = 1_000
"""Maximum headers of a record that is checked on the event loop: each takes a microsecond."""
MESSAGE_BYTES_MAX = 1_048_588
"""Kafka's default of ``max.message.bytes``, for topics without the config."""
OUTCOMES_A_STEP = 50
"""Partitions of a reply that are settled in one step of the event loop: up to about 0.25 ms."""
ACKS_NONE, ACKS_LEADER, ACKS_ALL = 0, 1, -1
NO_TIME = -1
_RESENT = frozenset(
    {
        Code.UNKNOWN_TOPIC_OR_PARTITION,
        Code.UNKNOWN_TOPIC_ID,
        Code.NOT_LEADER_OR_FOLLOWER,
        Code.REQUEST_TIMED_OUT,
        Code.NOT_ENOUGH_REPLICAS,
        Code.KAFKA_STORAGE_ERROR,
    }
)
"""Errors after which clients send the same batch again.

After any other error the batch is lost, and the client continues with the next one.
"""


class _Appended(NamedTuple):
    number: int
    topic: PartitionedTopic
    partition: LocalPartition
    ack: FrameAck
    append_time_ms: int


class _Failed(NamedTuple):
    number: int
    error: Exception
    hint: LeaderHint | None = None


class _Sequence(NamedTuple):
    """The sequence of a batch of an idempotent producer."""

    who: tuple[int, str | bytes, int, int]
    """The connection, topic, partition and producer id."""
    epoch: int
    first: int

    @classmethod
    def of(cls, connection: int, topic: str | bytes, partition: int, header: BatchHeader) -> "_Sequence | None":
        """Return the sequence of a batch; None without a producer id."""
        if header.producer_id < 0:
            return None
        return cls((connection, topic, partition, header.producer_id), header.producer_epoch, header.base_sequence)


class ProduceHandlers:
    """Handler of Produce."""

    def __init__(self, runtime: BrokerRuntime, partitions: PartitionLookup) -> None:
        self._runtime = runtime
        self._partitions = partitions
        self._rejected = RejectedSequences()
        self._unpacking = OneAtATime()

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by API key."""
        return {API.PRODUCE: self.produce}

    async def produce(self, request: Request) -> Awaitable[Reply]:
        """Append all batches of a request; the returned awaitable waits until all of them are committed.

        Raises:
            KafkaError: If ``acks`` is not 0, 1 or -1: INVALID_REQUIRED_ACKS.
        """
        body = request.body
        if body.acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            raise KafkaError(Code.INVALID_REQUIRED_ACKS, f"acks={body.acks} is unknown: use 0, 1 or -1 (all)")
        began = asyncio.get_running_loop().time()
        timeout_s = min(max(body.timeout_ms, 0) / 1000, TIMEOUT_S_MAX)
        room_by = began + max(timeout_s, MEMORY_S_MIN)
        topics = []
        for wanted in body.topic_data:
            outcomes = []
            for part in wanted.partition_data:
                outcomes.append(await self._append(request, wanted, part, room_by))
                await request.turn.pause()
            if outcomes:
                topics.append((wanted, outcomes))
        if body.acks == ACKS_NONE:
            return Later(partial(self._raise_failed, topics))
        alone_by = began + max(timeout_s, ALONE_S_MIN)
        due = alone_by if body.acks == ACKS_LEADER else began + timeout_s
        return Later(partial(self._reply, request.version, request.turn, topics, alone_by, due))

    async def _raise_failed(self, topics: Sequence[tuple[Any, Sequence[_Appended | _Failed]]]) -> None:
        """Raise the first error of a request with acks=0, which closes the connection: there is no reply."""
        for _, outcomes in topics:
            for outcome in outcomes:
                if isinstance(outcome, _Failed):
                    raise outcome.error

    async def _append(self, request: Request, wanted: Any, part: Any, deadline: float) -> _Appended | _Failed:
        topic = None
        records: Frames = part.records if part.records is not None else b""
        key = key_of(wanted.name, wanted.topic_id, by_id=request.version >= BY_ID_FROM)
        header = _header_of(records)
        sequence = None if header is None else _Sequence.of(request.connection, key, part.index, header)
        now = asyncio.get_running_loop().time()
        is_behind = sequence is not None and self._rejected.is_behind(sequence.who, sequence.epoch, sequence.first, now)
        try:
            topic = self._partitions.topic(key)
            appending = self._append_to(
                topic, part.index, records, header, needs_all=request.body.acks == ACKS_ALL, may_begin=not is_behind
            )
            appended = await TimeLimit(appending, deadline)
            if sequence is not None:
                self._rejected.forget(sequence.who)
            return appended
        except SeaweedMQError as raised:
            # Without its traceback, whose frames hold the unpacked batch: up to 64 MiB until garbage is collected.
            error = fresh(_behind(raised) if is_behind else raised)
            error.__cause__ = None
            hint = None if topic is None else self._partitions.hint(topic, part.index, error)
            failed = _Failed(part.index, error, hint)
        except TimeoutError:
            failed = _Failed(
                part.index, DeadlineExceeded(f"{wanted.name}: no memory for the batch within timeout_ms: retry")
            )
        if sequence is not None and not is_behind and code_of(failed.error, place=ErrorScope.PRODUCE) in _RESENT:
            self._rejected.refuse(sequence.who, sequence.epoch, sequence.first, now)
        return failed

    async def _append_to(
        self,
        topic: PartitionedTopic,
        index: int,
        data: Frames,
        header: BatchHeader | None,
        *,
        needs_all: bool,
        may_begin: bool,
    ) -> _Appended:
        if topic.is_internal:
            raise KafkaError(
                Code.INVALID_TOPIC_EXCEPTION,
                f"topic {topic.name} is internal, only coordinators write it: choose another one",
            )
        if not topic.is_writable:
            raise KafkaError(
                Code.INVALID_TOPIC_EXCEPTION,
                f"topic {topic.name} has no fixed partitions, its keys are spread over a ring: publish to it with "
                "SeaweedMQ's own clients, or create a topic with partitions",
            )
        partition = self._partitions.led(topic, index)
        settings = partition.topic.settings
        if needs_all and len(partition.segment.replicas) < settings.insync_replicas_min:
            raise KafkaError(
                Code.NOT_ENOUGH_REPLICAS,
                f"partition {index} of {topic.name} has {len(partition.segment.replicas)} replicas now, below "
                f"min.insync.replicas={settings.insync_replicas_min} for acks=all: retry when more brokers run",
            )
        header = header or read_header(data)  # raises the error of bytes that are not a batch
        has_own_time = settings.timestamp_type is TimestampType.CREATE_TIME
        times_ms = self._times_ms(settings) if has_own_time else CALENDAR_MS
        checked = await self._checked(data, header, settings, times_ms)
        if checked.header.base_offset != 0:
            raise InvalidBatch(
                BatchErrorCode.INVALID_RECORD,
                f"batch has base offset {checked.header.base_offset}: send 0, the broker assigns offsets",
            )
        append_time_ms = NO_TIME
        if not has_own_time:
            append_time_ms = self._runtime.env.wall_us() // 1000
            data, checked = with_append_time(data, checked, append_time_ms)
        ack = await partition.append(frame_of_batch(data, partition.partition, checked), may_begin=may_begin)
        return _Appended(index, topic, partition, ack, append_time_ms)

    def _times_ms(self, settings: TopicSettings) -> tuple[int, int]:
        """Return the earliest and the latest time that a topic accepts for a record, in milliseconds.

        Clients do not resend a batch that is rejected for its time, and librdkafka duplicates the batches behind it if
        they were appended but not acknowledged. So a clock that was just set does not reject a time that it would have
        accepted before (``core.clock_doubt``).
        """
        earliest_ms, latest_ms = (us // 1000 for us in self._runtime.clock.span_us())
        return earliest_ms - settings.behind_max_ms, latest_ms + settings.ahead_max_ms

    async def _checked(
        self, data: Frames, header: BatchHeader, settings: TopicSettings, times_ms: tuple[int, int]
    ) -> CheckedBatch:
        config = self._runtime.config
        bytes_max = MESSAGE_BYTES_MAX if settings.message_bytes_max is None else settings.message_bytes_max

        def check(record_headers_max: int = HEADERS_OF_RECORD_MAX) -> CheckedBatch:
            return check_batch(
                data,
                header=header,
                unpacked_bytes_max=config.kafka_unpacked_bytes_max,
                compacted=settings.compacts,
                bytes_max=min(bytes_max, config.frame_bytes_max - FRAME_HEADER_BYTES - ALIGNMENT),
                times_ms=times_ms,
                record_headers_max=record_headers_max,
            )

        if header.compression == NONE and len(data) <= QUICK_BYTES and header.record_count <= QUICK_RECORDS:
            try:
                return check(QUICK_HEADERS)
            except InvalidBatch as error:
                if not isinstance(error.__cause__, TooManyHeaders):
                    raise
        return await self._unpacking.run(check)  # one batch at a time, since its unpacked bytes are not accounted for

    async def _reply(
        self,
        version: int,
        turn: Turn,
        topics: Sequence[tuple[Any, Sequence[_Appended | _Failed]]],
        alone_by: float,
        replicated_by: float,
    ) -> Reply:
        """Reply after the commits; the deadline is ``replicated_by``, or ``alone_by`` of segments without followers."""
        hints: list[LeaderHint] = []
        said = []
        for wanted, outcomes in topics:
            key, parts = key_of(wanted.name, wanted.topic_id, by_id=version >= BY_ID_FROM), list[ProducedPartition]()
            for outcome in outcomes:
                settled = await self._settle(outcome, alone_by, replicated_by)
                if isinstance(settled, _Failed) and settled.hint is not None:
                    hints.append(settled.hint)
                parts.append(_produced(settled))
                if len(parts) % OUTCOMES_A_STEP == 0:  # not for small requests: they have waited for their commit
                    await turn.pause()
            said.append(
                ProducedTopic(name=key, partitions=parts)
                if isinstance(key, str)
                else ProducedTopic(topic_id=key, partitions=parts)
            )
        return await in_turns(produce_reply(version, said, endpoints=endpoints(hints)), turn)

    async def _settle(self, outcome: _Appended | _Failed, alone_by: float, replicated_by: float) -> _Appended | _Failed:
        """Wait until a batch is committed; return it, or its failure."""
        if isinstance(outcome, _Failed) or outcome.ack.end_offset <= outcome.partition.high_watermark:
            return outcome
        is_alone = len(outcome.partition.segment.replicas) == 1
        try:
            async with asyncio.timeout_at(alone_by if is_alone else replicated_by):
                await outcome.partition.committed(outcome.ack.end_offset)
        except SeaweedMQError as error:
            return _Failed(outcome.number, error, self._partitions.hint(outcome.topic, outcome.number, error))
        except TimeoutError:
            return _Failed(
                outcome.number, DeadlineExceeded(f"{outcome.partition.topic.name}: not committed within timeout_ms")
            )
        return outcome


def _header_of(records: Frames) -> BatchHeader | None:
    """Return the header of a batch; None if the bytes are not a batch."""
    try:
        return read_header(records)
    except InvalidBatch:
        return None


def _behind(error: SeaweedMQError) -> SeaweedMQError:
    """Return a retriable error for a batch behind a rejected one: after a gap, a client drops the rejected batch."""
    if isinstance(error, OutOfOrderSequence):
        return Unavailable(f"an earlier batch was rejected, send that again first: {error}")
    return error


def _produced(outcome: _Appended | _Failed) -> ProducedPartition:
    if isinstance(outcome, _Appended):
        return ProducedPartition(
            index=outcome.number,
            base_offset=outcome.ack.base_offset,
            log_append_time_ms=outcome.append_time_ms,
            log_start_offset=outcome.partition.known_log_start(),
        )
    hint, error = outcome.hint, outcome.error
    return ProducedPartition(
        index=outcome.number,
        error_code=code_of(error, place=ErrorScope.PRODUCE),
        record_errors=error.records if isinstance(error, InvalidBatch) else (),
        error_message=str(error),
        leader_id=-1 if hint is None else hint.node.id,
        leader_epoch=-1 if hint is None else hint.epoch,
    )
