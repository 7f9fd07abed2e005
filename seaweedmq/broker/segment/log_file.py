"""Log files of an open segment, and their creation.

The preamble of each file records the segment, its producers, and the offsets already flushed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count

from seaweedmq.codec.logfile import LogPreamble, encode_preamble
from seaweedmq.core.files.retention import synced_writer
from seaweedmq.errors import AlreadyExists
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import DirectoryStore, LogWriter


@dataclass(slots=True)
class OpenFile:
    """A log file of this segment that is not closed yet. Invariant: base <= flushed <= written."""

    writer: LogWriter
    writer_id: str
    base: int
    written: int
    flushed: int
    opened_at: float
    """The time of its creation on the event loop's clock, in seconds."""
    appending: bool = False
    """Whether a write is under way. Even a complete file is closed only after the write has ended and is flushed."""
    is_abandoned: bool = False
    """Whether its fsync failed. Its frames are being copied to another file, and further writes to it do not count."""
    is_durable: bool = False
    """Whether it was fsynced once: power loss may then cut off its end but not remove it."""


class LogFileCreator:
    """The creation of one writer's log files of an open segment, each with a name of its own."""

    def __init__(
        self,
        store: DirectoryStore,
        topic: Topic,
        segment: Segment,
        writer_id: str,
        provenance: Callable[[Segment], Sequence[Segment]] = lambda segment: (segment,),
    ) -> None:
        """Create the creator; ``provenance`` returns the segments that a log file records: see ``core.lineage``."""
        self._store = store
        self._topic = topic
        self._segment = segment
        self._writer_id = writer_id
        self._provenance = provenance
        self._begun: dict[int, int] = {}
        """Base offset -> number of files created there, for offsets at which another file may have to begin."""

    async def create(self, base: int, producers: Sequence[ProducerState], *, flushed: int) -> tuple[LogWriter, str]:
        """Create a file for frames from offset ``base`` on, and return its writer and the writer's part of its name.

        ``producers`` are the states as of ``base``; below ``flushed`` all frames are flushed. Raises StorageFailed.
        """
        while True:
            # After a failure another file may begin at the same offset; it needs another name.
            repeats = self._begun.get(base, 0)
            writer_id = self._writer_id if not repeats else f"{self._writer_id}.{repeats}"
            self._begun = {b: n for b, n in self._begun.items() if b >= flushed}
            self._begun[base] = repeats + 1  # counted first: a failed attempt may have taken the name
            lineage = self._provenance(self._segment)
            begun = (self._store, self._topic, self._segment, base, writer_id, producers)
            try:
                return await create_log_file(*begun, lineage=lineage, flushed=flushed), writer_id
            except AlreadyExists:
                continue  # written by this broker for an earlier topic of this name, after its files were deleted

    async def put_empty(self, end: int, producers: Sequence[ProducerState]) -> None:
        """Put a log file without records, which is durable before it gets its name: see ``core.files.retention``.

        ``end`` is the end offset of the segment, below which all frames are flushed. Raises StorageFailed.
        """
        lineage = self._provenance(self._segment)
        for repeats in count():
            name = synced_writer(self._writer_id, repeats)
            preamble = _preamble(self._topic, self._segment, end, name, producers, lineage, end)
            try:
                await self._store.put_log(self._topic.name, self._segment.id, end, name, preamble)
            except AlreadyExists:
                continue  # the file belongs to an earlier topic of this name
            return


async def create_log_file(
    store: DirectoryStore,
    topic: Topic,
    segment: Segment,
    base: int,
    writer_id: str,
    producers: Iterable[ProducerState],
    *,
    lineage: Sequence[Segment] = (),
    flushed: int | None = None,
) -> LogWriter:
    """Create a log file of the segment for frames from ``base`` on; all below ``flushed``, or ``base``, are flushed.

    Raises AlreadyExists if the writer already has a file that begins at ``base``, and StorageFailed.
    """
    preamble = _preamble(topic, segment, base, writer_id, producers, lineage, base if flushed is None else flushed)
    return await store.create_log(topic.name, segment.id, base, writer_id, preamble)


def _preamble(
    topic: Topic,
    segment: Segment,
    base: int,
    writer_id: str,
    producers: Iterable[ProducerState],
    lineage: Sequence[Segment],
    flushed: int,
) -> bytes:
    return encode_preamble(
        LogPreamble(
            topic=topic.name,
            topic_uid=topic.uid,
            segment=segment.id,
            base_offset=base,
            writer=writer_id,
            flushed=flushed,
            producers=tuple(producers),
            lineage=tuple(lineage),
            origin=topic if not segment.predecessors and base == segment.start_offset else None,
        )
    )
