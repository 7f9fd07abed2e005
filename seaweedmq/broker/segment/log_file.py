"""Beginning a log file: its preamble says whose it is, and what was stored and fsynced before."""

from collections.abc import Iterable, Sequence

from seaweedmq.codec.logfile import LogPreamble, encode_preamble
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import LogWriter, SegmentStore


async def create_log_file(
    store: SegmentStore,
    topic: Topic,
    segment: Segment,
    base: int,
    writer_id: str,
    producers: Iterable[ProducerState],
    *,
    lineage: Sequence[Segment] = (),
    flushed: int | None = None,
) -> LogWriter:
    """A new log file of the segment that takes frames from offset ``base`` on.

    Args:
        producers: as of ``base``.
        lineage: the segment and those it comes from: see ``core.lineage.provenance``.
        flushed: everything below it is fsynced; None: everything below ``base``.

    Raises:
        AlreadyExists: the writer has a file that begins there.
        StorageFailed: the storage refused.
    """
    preamble = encode_preamble(
        LogPreamble(
            topic=topic.name,
            topic_uid=topic.uid,
            segment=segment.id,
            base_offset=base,
            writer=writer_id,
            flushed=base if flushed is None else flushed,
            producers=tuple(producers),
            lineage=tuple(lineage),
            origin=topic if not segment.predecessors and base == segment.start_offset else None,
        )
    )
    return await store.create_log(topic.name, segment.id, base, writer_id, preamble)
