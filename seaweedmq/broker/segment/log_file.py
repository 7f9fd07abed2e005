"""Creation of log files, with a preamble that records the segment, its producers, and the offsets already flushed."""

from collections.abc import Iterable, Sequence
from itertools import count

from seaweedmq.codec.logfile import LogPreamble, encode_preamble
from seaweedmq.core.files.retention import synced_writer
from seaweedmq.errors import AlreadyExists
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
    """Create a log file of the segment for frames from offset ``base`` on.

    Args:
        store: The shared storage.
        topic: The segment's topic.
        segment: The segment.
        base: The offset of the first frame.
        writer_id: The writer's part of the file name.
        producers: The producer states as of ``base``.
        lineage: The segment and its ancestors: see ``core.lineage.provenance``.
        flushed: The offset below which all frames are flushed; None for ``base``.

    Raises:
        AlreadyExists: If the writer already has a file that begins at ``base``.
        StorageFailed: If storage rejects the file.
    """
    preamble = _preamble(topic, segment, base, writer_id, producers, lineage, base if flushed is None else flushed)
    return await store.create_log(topic.name, segment.id, base, writer_id, preamble)


async def put_empty_log_file(
    store: SegmentStore,
    topic: Topic,
    segment: Segment,
    base: int,
    broker: str,
    producers: Iterable[ProducerState],
    *,
    lineage: Sequence[Segment] = (),
) -> None:
    """Put a log file without records, which is durable before it gets its name: see ``core.files.retention``.

    Args:
        store: The shared storage.
        topic: The segment's topic.
        segment: The segment.
        base: The end offset of the segment, below which all frames are flushed.
        broker: The id of this broker, from which the file name is made.
        producers: The producer states as of ``base``.
        lineage: The segment and its ancestors: see ``core.lineage.provenance``.

    Raises:
        StorageFailed: If storage rejects the file.
    """
    for repeats in count():
        writer_id = synced_writer(broker, repeats)
        preamble = _preamble(topic, segment, base, writer_id, producers, lineage, base)
        try:
            await store.put_log(topic.name, segment.id, base, writer_id, preamble)
        except AlreadyExists:
            continue  # the file belongs to an earlier topic of this name
        return


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
