"""Beginning a log file: its preamble says whose it is, and what was stored and fsynced before."""

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
    """A new log file of the segment that takes frames from offset ``base`` on.

    Args:
        producers: as of ``base``.
        lineage: the segment and those it comes from: see ``core.lineage.provenance``.
        flushed: everything below it is fsynced; None: everything below ``base``.

    Raises:
        AlreadyExists: the writer has a file that begins there.
        StorageFailed: the storage refused.
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
    """Put down a log file without a record, durable before it has its name; see ``core.files.retention``.

    Args:
        base: the end of the segment, all of which is fsynced.
        producers: as of ``base``.
        lineage: the segment and those it comes from: see ``core.lineage.provenance``.

    Raises:
        StorageFailed: the storage refused.
    """
    for repeats in count():
        writer_id = synced_writer(broker, repeats)
        preamble = _preamble(topic, segment, base, writer_id, producers, lineage, base)
        try:
            await store.put_log(topic.name, segment.id, base, writer_id, preamble)
        except AlreadyExists:
            continue  # left by an earlier topic of the name
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
