"""How the memory of a broker is shared out: one bound, and budgets that add up to it.

What waits for one budget holds no other that its holder waits for, so nothing waits in a circle:

* ``logs``: frames of open segments, from before they are received. Freed by the storage: what is fsynced gives way.
* ``replicas``: frames of followed segments, the same. Freed by the fsyncs of their primaries, told outside the streams.
* ``intake``: messages of publishers and primaries on their way in. Freed by the sender, or the end of its time.
* ``reading``: what readers of files have read and not sent. Freed by the reader, at the end of its turn or in a pause.
* ``relaying``: messages on their way to followers. Nobody waits for it: without it messages are small.
* ``groups_bytes``: native groups, while the broker leads. Nothing waits for it: what is beyond is rejected.
* ``sending``: messages on their way to subscribers. Freed by the peer; what stalls is charged to ``logs``, in part, and
  who waits too long is refused.

A stream may always have one small message under way, of ``SMALL_MESSAGE_BYTES``; that, and what gRPC takes in
unasked, is covered by the ``STREAM_BYTES`` set aside for each. So paused streams stop nobody's small messages.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.read_permit import turn_bytes
from seaweedmq.errors import InvalidArgument, ResourceExhausted
from seaweedmq.model.config import KIB, MIB, BrokerConfig

STREAM_BYTES = 180 * KIB
"""Of one stream and its connection: some 50 KiB of Python and gRPC, a small message, and 64 KiB more in gRPC's hands:
the copy of what a subscriber does not read, or what a publisher has sent behind a message that waits."""
STREAMS_SHARE_MAX = 0.9
"""The largest share of the memory for logs that streams may take: with all other settings at their defaults more than
1,200 of them, also beside Kafka clients."""
HEAP_SHARE = 1 / 12
"""Of the bound, for what the allocator has freed and not yet given back, control calls and files being written."""
HEAP_BYTES_MIN = 32 * MIB
LOGS_BYTES_MIN = 32 * MIB
RELAYING_PART = 12
"""One part in so many of the memory for frames is for sending them to followers."""
PASSAGE_PART = 12
"""One part in so many for each of ``intake``, ``reading`` and ``sending``, two copies of the largest frame at least."""
GROUPS_PART = 16
"""One part in so many of the memory for frames is for native groups, which the leader coordinates."""
OPENING_PATIENCE_S = 10.0
"""A stream waits so long for memory. What is fsynced gives way, so with a storage that works it is there soon."""
STANDING_PART = 2
"""One part in so many of ``intake`` may be set aside for streams; the rest serves pieces."""
AHEAD_BYTES = 2 * MIB
"""What may come ahead on a stream of many conversations, beyond what each may send: with it a publisher that is alone
does not wait for the news that its last message was taken."""
COPIES = 2
"""A message is held by Python and, on its way in or out, by gRPC."""


KAFKA_PART = 4
"""With a listener for Kafka clients one part in so many is theirs, at most: for what they send, what they are sent,
their groups, and batches made for them."""


def heap_bytes(config: BrokerConfig) -> int:
    """Return the part of the bound that no budget takes."""
    return max(HEAP_BYTES_MIN, int(config.memory_bytes_max * HEAP_SHARE))


@dataclass(frozen=True, slots=True)
class KafkaMemory:
    """What a listener for Kafka clients may hold. All zero without one."""

    in_flight_bytes: int
    fetch_bytes: int
    reencode_bytes: int
    groups_bytes: int

    @classmethod
    def of(cls, config: BrokerConfig, available_bytes: int) -> "KafkaMemory":
        """As much as is configured, or as fits its part."""
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
        """All of it."""
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
        """Share out what a process that already takes ``runtime_bytes`` has left.

        Raises:
            InvalidArgument: it is too little.
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
        # Each turn at reading files holds one open, so their memory bounds their number.
        readers_bytes = max(frame, config.file_readers_max * turn_bytes(config.read_chunk_bytes))
        frames = available - 3 * share
        groups_bytes = frames // GROUPS_PART
        frames -= groups_bytes
        # Apart, or two brokers that follow each other could each wait for memory that only the other can free.
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
        """All of them."""
        return self.logs, self.replicas, self.intake, self.reading, self.relaying, self.sending


class StreamMemory:
    """Sets ``STREAM_BYTES`` of the logs' memory aside for every open stream."""

    def __init__(
        self,
        logs: MemoryBudget,
        intake: MemoryBudget,
        frames_bytes_min: int,
        end_idle: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        Args:
            logs: gives the memory; ``frames_bytes_min`` of it are left for frames in any case.
            intake: gives what may be sent ahead.
            frames_bytes_min: see ``logs``.
            end_idle: ends a stream that carries nothing, if there is one; returns whether there is.
        """
        self._logs = logs
        self._intake = intake
        self._end_idle = end_idle
        streams_max = max(0, min(int(logs.limit * STREAMS_SHARE_MAX), logs.limit - frames_bytes_min)) // STREAM_BYTES
        self._slots = asyncio.Semaphore(streams_max)
        self._lent = 0
        """Number of open streams."""

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[None]:
        """Around the life of a stream; waits while frames that are not flushed yet fill the memory, and for the end of
        an idle stream if there are as many as the memory allows.

        Raises:
            ResourceExhausted: there are as many streams as the memory allows, or the wait is too long.
        """
        if self._slots.locked() and not self._end_idle():
            raise self._full()
        try:
            async with asyncio.timeout(OPENING_PATIENCE_S):
                await self._slots.acquire()  # soon: a stream is ended for each that waits
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
        """Around the life of a stream of many conversations: how many bytes may be sent ahead on it; 0 if there is no
        memory to set aside."""
        size = AHEAD_BYTES if self._intake.used + AHEAD_BYTES <= self._intake.limit // STANDING_PART else 0
        if not self._intake.take_now(size):
            size = 0
        try:
            yield size
        finally:
            self._intake.give(size)

    def _full(self) -> ResourceExhausted:
        return ResourceExhausted(
            f"this broker has {self._lent} streams open, as many as its memory allows: close some, use more brokers, "
            "or raise memory_bytes_max"
        )

    async def _borrow(self) -> None:
        try:
            async with asyncio.timeout(OPENING_PATIENCE_S):
                await self._logs.lend(STREAM_BYTES)
        except TimeoutError:
            raise ResourceExhausted(
                f"no stream can be opened: for {OPENING_PATIENCE_S:.0f} s frames that are not flushed yet filled this "
                "broker's memory for logs: see whether its storage is full, slow or gone, and try again; if it is "
                "well, send less or raise memory_bytes_max"
            ) from None
