"""Division of a broker's memory: one limit, and budgets that add up to it.

A task that waits for one budget holds no memory that the holders of that budget wait for, so there is no deadlock:

* ``logs``: frames of open segments, reserved before they are received. Storage frees it: flushed frames are evicted.
* ``replicas``: frames of followed segments, reserved likewise. Their primaries free it with progress notes, which are
  sent outside the replicate streams.
* ``intake``: messages of publishers and primaries on their way in. The sender frees it, or its timeout.
* ``reading``: chunks that readers of files have read and not sent. The reader frees it, when its permit ends or while
  it pauses.
* ``relaying``: messages on their way to followers. Replication never waits for it: without it messages are small.
* ``groups_bytes``: native groups, while the broker leads. Nothing waits for it: requests beyond it are rejected.
* ``sending``: messages on their way to subscribers. The peer frees it. A part of the stalled messages is charged to
  ``logs``, and a stream that waits too long is rejected.

Each stream may always have one message of ``SMALL_MESSAGE_BYTES`` under way. ``STREAM_BYTES``, reserved per stream,
covers that message and what gRPC receives on its own. So paused streams never block the small messages of others.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.read_permit import permit_bytes
from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.config import KIB, MIB, BrokerConfig

STREAM_BYTES = 180 * KIB
"""Memory in bytes of one stream and its connection: some 50 KiB of Python and gRPC, a small message, and 64 KiB that
gRPC holds. The 64 KiB are the copy of an unread message to a subscriber, or a publisher's data after a waiting one."""
STREAMS_SHARE_MAX = 0.9
"""Largest share of the memory for logs that streams may take. With default settings it allows more than 1,200 streams,
also with Kafka clients."""
HEAP_SHARE = 1 / 12
"""Share of the limit for memory that the allocator has not returned yet, control calls and files being written."""
HEAP_BYTES_MIN = 32 * MIB
"""Least bytes of that share."""
LOGS_BYTES_MIN = 32 * MIB
"""Least bytes for frames of open segments."""
RELAYING_PART = 12
"""Divisor of the memory for frames that gives the part for messages to followers."""
PASSAGE_PART = 12
"""Divisor of the available memory that gives the part of each of ``intake``, ``reading`` and ``sending``. Each part is
at least two copies of the largest frame."""
GROUPS_PART = 16
"""Divisor of the memory for frames that gives the part for native groups, which the leader coordinates."""
OPENING_PATIENCE_S = 10.0
"""Longest wait in seconds of a new stream for memory. Flushed frames are evicted, so working storage frees it soon."""
STANDING_PART = 2
"""Divisor of ``intake`` that gives the part that may be reserved for streams. The rest is for payload parts."""
AHEAD_BYTES = 2 * MIB
"""Bytes that may arrive early on a stream of many channels, beyond the window of each. With it a lone publisher does
not wait for the reply that its last message was taken."""
COPIES = 2
"""Number of copies of a message on its way in or out: one in Python and one in gRPC."""


KAFKA_PART = 4
"""Divisor of the available memory that gives the largest part for Kafka clients: for their requests, responses, groups
and re-encoded batches."""


def heap_bytes(config: BrokerConfig) -> int:
    """Return the part of ``memory_bytes_max`` that belongs to no budget, in bytes."""
    return max(HEAP_BYTES_MIN, int(config.memory_bytes_max * HEAP_SHARE))


@dataclass(frozen=True, slots=True)
class KafkaMemory:
    """The memory limits of a Kafka listener, in bytes. All are 0 without a listener."""

    in_flight_bytes: int
    fetch_bytes: int
    reencode_bytes: int
    groups_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig, available_bytes: int) -> "KafkaMemory":
        """Return the configured limits, scaled down in proportion if they exceed the part for Kafka clients."""
        if not config.kafka_listen:
            return cls(0, 0, 0, 0)
        wanted = (
            config.kafka_in_flight_bytes_max,
            config.kafka_fetch_bytes_max,
            config.kafka_reencode_cache_bytes_max,
            config.kafka_groups_bytes_max,
        )
        share = min(1.0, available_bytes / KAFKA_PART / sum(wanted))
        return cls(*(int(size * share) for size in wanted))

    @property
    def total_bytes(self) -> int:
        """The sum of all limits."""
        return self.in_flight_bytes + self.fetch_bytes + self.reencode_bytes + self.groups_bytes


@dataclass(frozen=True, slots=True)
class BrokerMemory:
    """The budgets of one broker."""

    logs: MemoryBudget
    replicas: MemoryBudget
    intake: MemoryBudget
    reading: MemoryBudget
    relaying: MemoryBudget
    sending: MemoryBudget
    groups_bytes: int
    kafka: KafkaMemory

    @classmethod
    def of(cls, config: BrokerConfig, runtime_bytes: int) -> "BrokerMemory":
        """Divide the memory that a process with ``runtime_bytes`` in use has left.

        Raises InvalidArgument if ``memory_bytes_max`` is too low.
        """
        heap = heap_bytes(config)
        available = config.memory_bytes_max - runtime_bytes - heap
        kafka = KafkaMemory.of(config, max(0, available))
        available -= kafka.total_bytes
        frame = COPIES * config.frame_bytes_max
        share = max(available // PASSAGE_PART, frame)
        least = 3 * frame + 2 * LOGS_BYTES_MIN
        if available < least:
            needed = runtime_bytes + heap + least + kafka.total_bytes
            raise InvalidArgument(
                f"memory_bytes_max of {config.memory_bytes_max} bytes is too low: the runtime takes {runtime_bytes}, "
                f"and buffers for frames of up to {config.frame_bytes_max} bytes need {least}: set it to "
                f"{needed + HEAP_BYTES_MIN} or more, or lower frame_bytes_max"
            )
        # Each read permit keeps one file open, so their memory bounds their number.
        readers_bytes = max(frame, config.file_readers_max * permit_bytes(config.read_chunk_bytes))
        frames = available - 3 * share
        groups_bytes = frames // GROUPS_PART
        frames -= groups_bytes
        # Separate: otherwise two brokers that follow each other could each wait for memory that only the other frees.
        relaying = frames // RELAYING_PART
        frames -= relaying
        replicas = frames // 3
        return cls(
            logs=MemoryBudget(frames - replicas),
            replicas=MemoryBudget(replicas, "replica"),
            intake=MemoryBudget(share, "intake"),
            reading=MemoryBudget(min(share, readers_bytes), "reading"),
            relaying=MemoryBudget(relaying, "relaying"),
            sending=MemoryBudget(share, "sending"),
            groups_bytes=groups_bytes,
            kafka=kafka,
        )

    @property
    def budgets(self) -> tuple[MemoryBudget, ...]:
        """All budgets."""
        return self.logs, self.replicas, self.intake, self.reading, self.relaying, self.sending


class StreamMemory:
    """The memory of streams: each open stream reserves ``STREAM_BYTES`` of the logs' memory."""

    def __init__(
        self,
        logs: MemoryBudget,
        intake: MemoryBudget,
        frames_bytes_min: int,
        end_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """Compute how many streams may be open while ``frames_bytes_min`` of ``logs`` remain for frames.

        ``end_idle`` ends an idle stream and returns whether there was one.
        """
        self._logs = logs
        self._intake = intake
        self._end_idle = end_idle
        streams_max = max(0, min(int(logs.limit * STREAMS_SHARE_MAX), logs.limit - frames_bytes_min)) // STREAM_BYTES
        self._slots = asyncio.Semaphore(streams_max)
        self._lent = 0
        """The number of open streams."""

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Hold the memory of a stream for the duration of the block.

        It waits while unflushed frames fill the memory, and at the limit of streams for an idle one to end. Raises
        ResourceExhausted if none is idle, or the wait exceeds ``OPENING_PATIENCE_S``.
        """
        if self._slots.locked() and not self._end_idle():
            raise self._full()
        try:
            async with asyncio.timeout(OPENING_PATIENCE_S):
                await self._slots.acquire()  # short: an idle stream was ended for each waiting one
        except TimeoutError:
            raise self._full() from None
        self._lent += 1
        try:
            await self._borrow()
            try:
                yield
            finally:
                self._logs.restore(STREAM_BYTES)
        finally:
            self._lent -= 1
            self._slots.release()

    @contextmanager
    def ahead(self) -> Iterator[int]:
        """Hold memory of early messages on a stream of many channels; yield the bytes, 0 if no memory is available."""
        size = AHEAD_BYTES if self._intake.used + AHEAD_BYTES <= self._intake.limit // STANDING_PART else 0
        if not self._intake.take_now(size):
            size = 0
        try:
            yield size
        finally:
            self._intake.give(size)

    def _full(self) -> ResourceExhausted:
        return ResourceExhausted(
            f"broker has {self._lent} streams open, as many as its memory allows: close some, add brokers, "
            "or raise memory_bytes_max"
        )

    async def _borrow(self) -> None:
        try:
            async with asyncio.timeout(OPENING_PATIENCE_S):
                await self._logs.lend(STREAM_BYTES)
        except TimeoutError:
            raise ResourceExhausted(
                f"broker cannot open a stream: unflushed frames filled its memory for logs for "
                f"{OPENING_PATIENCE_S:.0f} s: check whether its storage is full, slow or unreachable, and retry; "
                "otherwise send less or raise memory_bytes_max"
            ) from None
