"""Content of log objects, and the producers as of their first offsets."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from seaweedmq.codec.frame import decode_header
from seaweedmq.codec.logfile import segment_preamble
from seaweedmq.codec.object_keys import LogObject, TopicKey
from seaweedmq.core.segment.bundling import PendingFrame
from seaweedmq.core.segment.producer_limits import ProducerLimits
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.errors import AlreadyExists, Corrupt
from seaweedmq.model.bundle import BundledFrame
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import TIMEOUT_S, Buffers, Objects


@dataclass(frozen=True, slots=True)
class LogContent:
    """A log object to be created."""

    file: SegmentFile
    buffers: Buffers
    """The preamble, then all frames."""


@dataclass(frozen=True, slots=True)
class LogMaker:
    """The log objects of one segment by one broker."""

    topic: Topic
    segment: Segment
    writer: str
    """Id of the broker that creates them."""
    lineage: Callable[[], Sequence[Segment]]
    """Function that returns the segments that log objects record: see ``core.lineage.provenance``."""
    wall_us: Callable[[], int]

    def make(
        self,
        base_offset: int,
        end_offset: int,
        producers: Iterable[ProducerState],
        frames: Sequence[bytes | memoryview],
    ) -> LogContent:
        """Return the log object of these offsets.

        Args:
            base_offset: Offset of the first frame.
            end_offset: End of the last frame.
            producers: Producer states as of the first frame.
            frames: The buffers of all frames.
        """
        preamble = segment_preamble(
            self.topic, self.segment, base_offset, self.writer, producers, self.lineage(), base_offset
        )
        name = LogObject(
            TopicKey(self.topic.name, self.topic.uid), self.segment.id, base_offset, end_offset, self.writer
        )
        file = SegmentFile(
            topic=self.segment.topic,
            segment=self.segment.id,
            kind=FileKind.LOG,
            base_offset=base_offset,
            end_offset=end_offset,
            writer=self.writer,
            size_bytes=len(preamble) + sum(len(buffer) for buffer in frames),
            path=name.key,
            modified_us=self.wall_us(),
        )
        return LogContent(file, [preamble, *frames])


async def create_log(objects: Objects, content: LogContent, *, timeout_s: float = TIMEOUT_S) -> None:
    """Create a log object; a repeated call has no effect.

    Raises:
        Corrupt: If its name is taken by other content.
        StorageFailed: If it may or may not exist now.
    """
    key = content.file.path
    try:
        await objects.create(key, content.buffers, timeout_s=timeout_s)
    except AlreadyExists:
        found = (await objects.get(key, timeout_s=timeout_s)).content
        if found != b"".join(content.buffers):
            raise Corrupt(
                f"{objects.uri}/{key} has other content than broker {content.file.writer} gives it: move it away"
            ) from None


class LoggedProducers:
    """Producer states as of an offset that only rises, which the log's own table no longer knows."""

    def __init__(self, states: Iterable[ProducerState] = ()) -> None:
        self._table = ProducerTable(ProducerLimits.none(), states=states)
        self._later: deque[PendingFrame] = deque()

    def add(self, frames: Iterable[PendingFrame]) -> None:
        """Take later frames, in order."""
        self._later.extend(frames)

    def advance(self, offset: int) -> None:
        """Count the frames that begin below an offset."""
        while self._later and self._later[0].base_offset < offset:
            base, _, frame = self._later.popleft()
            self._table.floor = base
            ack = FrameAck(frame.first_sequence, frame.record_count, base)
            self._table.follow(frame.producer_id, frame.producer_epoch, ack)

    def keep(self, is_known: Callable[[int], bool]) -> None:
        """Forget producers that the log has forgotten, since they can no longer repeat anything."""
        states = [state for state in self._table.snapshot() if is_known(state.producer_id)]
        self._table = ProducerTable(ProducerLimits.none(), states=states)

    def snapshot(self) -> tuple[ProducerState, ...]:
        """Return the states, the longest idle first."""
        return self._table.snapshot()


def pending_frame(header_bytes: bytes | memoryview, size_bytes: int) -> PendingFrame:
    """Return a stamped frame of ``size_bytes`` as the cutter takes it."""
    header = decode_header(header_bytes)
    frame = BundledFrame(header.producer_id, header.producer_epoch, header.first_sequence, header.record_count)
    return PendingFrame(header.base_offset, size_bytes, frame)
