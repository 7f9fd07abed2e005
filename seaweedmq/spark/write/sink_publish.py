"""What the driver does with what its tasks have staged: one manifest, whose rows are then published, once."""

import logging
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from xxhash import xxh3_64_intdigest

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.publish.staged_publisher import Search, StagedPublisher, one_thread, place_of, recreated
from seaweedmq.client.publish.staged_rows import StagedRows
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.core.replay import Replay
from seaweedmq.errors import InvalidArgument, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.model.description import OPEN
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.ring import KeyRange, covers_ring
from seaweedmq.model.segment import Segment
from seaweedmq.model.staged import CompletedBatch, Manifest, SegmentProgress, StagedFile
from seaweedmq.model.topic import Topic
from seaweedmq.spark.write.sink_options import SinkOptions
from seaweedmq.spark.write.sink_plan import again, check_storage, connected, open_ranges
from seaweedmq.storage.read.producer_lookup import stored_sequence
from seaweedmq.storage.staging import StagedBatch, StagedFrames, StagedSink
from seaweedmq.storage.store.files import open_store

log = logging.getLogger(__name__)

_BATCHES_MAX = 2**32
"""Epochs of producers end there."""


async def publish_staged(
    options: SinkOptions,
    sink_id: str,
    number: int,
    files: Sequence[StagedFile],
    topic_uid: int,
    *,
    is_last: bool = False,
) -> int:
    """Publish a batch, or what is left to do of it; return its rows, or 0 if it was published before.

    Args:
        files: as tasks have staged them for this batch, in the order of the rows.
        topic_uid: of the topic that they were staged for.
        is_last: the sink comes never again, so that no mark is left of what it has done.

    Raises:
        NotFound: the topic was deleted, or created again since the batch was staged.
        InvalidArgument: the storage is not the cluster's.
        InvalidArgument: the batch is another one than that of its number which was published: see ``check_repeat``.
        OutOfRange: nobody can tell any more what of the batch is stored: see the option ``repeatUnknown``.
        SeaweedMQError: a broker refuses, or the storage, or nothing was acknowledged in time.
    """
    if not 0 <= number < _BATCHES_MAX:
        raise InvalidArgument(f"batch {number} of {sink_id}: a sink has batches from 0 to {_BATCHES_MAX - 1}")
    root = open_store(options.storage).root
    sink = StagedSink(root, options.topic, sink_id)
    batch = sink.batch(number)
    names = {file.name for file in files}
    done = sink.done()
    if done is not None and number <= done.batch:
        check_repeat(number, options.checkpoint, done.batch, done.checkpoint)
        batch.discard(names)
        return 0
    manifest = batch.manifest()
    if manifest is not None:
        check_repeat(number, options.checkpoint, number, manifest.checkpoint)
    if manifest is None and not any(file.record_count for file in files):
        batch.discard(names)
        return 0
    async with connected(options) as cluster:
        described = await cluster.describe(options.topic, OPEN)
        if described.topic.uid != (topic_uid if manifest is None else manifest.topic_uid):
            raise recreated(options.topic, number)
        await check_storage(options, described)
        is_resumed = manifest is not None
        if manifest is None:
            mine = await again(lambda: _manifest(cluster, sink_id, number, files, topic_uid, options), Unavailable)
            manifest = batch.put_manifest(mine)
            is_resumed = manifest != mine
        batch.discard(names - {file.name for file in manifest.files})
        search = None
        if is_resumed:  # however young it seems: a clock that was set back since would make an old one young
            search = partial(_search, root, described.topic, manifest, batch.begun_us(), options.repeat_unknown)
        await _publish(cluster, described.topic, manifest, batch, search)
        ranges = () if is_last else await _ranges_now(cluster, options, manifest)
    if not is_last:
        sink.finish(CompletedBatch(batch=number, ranges=ranges, checkpoint=options.checkpoint))
    return manifest.record_count


async def _ranges_now(cluster: Cluster, options: SinkOptions, manifest: Manifest) -> tuple[KeyRange, ...]:
    """What the next batch is best staged for: no reason to call this one failed."""
    try:
        return open_ranges(await cluster.describe(options.topic, OPEN))
    except SeaweedMQError as error:
        log.warning("%s: the next batch is staged for the segments of the one before: %s", options.topic, error)
        return tuple(root.slots for root in manifest.roots)


async def _manifest(
    cluster: Cluster, sink_id: str, number: int, files: Sequence[StagedFile], topic_uid: int, options: SinkOptions
) -> Manifest:
    """Raises Unavailable: the open segments do not cover the ring, which a cluster shows only in passing."""
    described = await cluster.describe(options.topic, OPEN, uid=topic_uid)
    topic = described.topic
    roots = tuple(place_of(segment) for segment in described.segments if segment.is_open)
    if not covers_ring((root.slots for root in roots), topic.ring):
        raise Unavailable(f"the open segments of {topic.name} do not cover its keys: its metadata is changing")
    return Manifest(
        topic_uid=topic.uid,
        batch=number,
        producer_id=producer_of(sink_id, topic),
        ring=topic.ring,
        files=tuple(file for file in files if file.record_count),
        roots=roots,
        checkpoint=options.checkpoint,
    )


def check_repeat(number: int, checkpoint: str, last: int, last_checkpoint: str) -> None:
    """A batch that was published, or is to be, comes again: make sure that its rows are the same. Spark repeats the
    last batch of a query, after a crash; what comes again otherwise is of a checkpoint that is not this query's alone.

    Args:
        number: of the batch.
        checkpoint: where its query keeps its checkpoint; "" if that is not known.
        last, last_checkpoint: the same of the last batch that the sink knows of.

    Raises:
        InvalidArgument: they may be others, and to drop them would lose them.
    """
    if number < last:
        why = f"batches up to {last} of its query are published"
    elif checkpoint and last_checkpoint and checkpoint != last_checkpoint:
        why = f"a query with the checkpoint {last_checkpoint} has written a batch of that number"
    else:
        return
    raise InvalidArgument(
        f"batch {number} of the query with the checkpoint {checkpoint or '(not known)'} is not written: {why}, so the "
        "checkpoint is a copy or out of date: resume from the checkpoint that was used last, in its original location, "
        "or set a new checkpointLocation"
    )


def producer_of(sink_id: str, topic: Topic) -> int:
    """The id under which a sink publishes to a topic: always the same."""
    identity = f"{sink_id}/{topic.name}/{topic.uid}".encode()
    return int(xxh3_64_intdigest(identity)) >> 2 | NATIVE_PRODUCER_BIT


async def _publish(
    cluster: Cluster, topic: Topic, manifest: Manifest, batch: StagedBatch, search: Search | None
) -> None:
    progress = batch.progress()
    replay = Replay(manifest.roots)
    replay.know(progress.places)
    replay.restore(progress.finished)
    schema = None if topic.schema is None else schema_from_bytes(topic.schema)
    frames = StagedFrames(batch.folder, manifest.files)
    try:
        pieces = StagedRows(frames, replay, manifest.ring, schema)
        async with one_thread() as offload:
            parts = cluster, topic.name, manifest, replay, pieces, progress
            await StagedPublisher(*parts, note=batch.note, search=search, offload=offload).run()
    finally:
        frames.close()


def _search(
    root: Path,
    topic: Topic,
    manifest: Manifest,
    since_us: int,
    repeat_unknown: bool,
    segment: Segment,
    reached: SegmentProgress,
) -> int:
    """What the files say of a segment that does not know the producer. Raises OutOfRange."""
    try:
        return stored_sequence(
            root,
            topic,
            segment,
            (manifest.producer_id, manifest.batch),
            since_us=since_us,
            sequence=reached.sequence,
            offset=reached.offset,
        )
    except OutOfRange as error:
        if repeat_unknown:
            return reached.sequence
        raise OutOfRange(
            f"batch {manifest.batch} was begun and not finished, longer ago than brokers remember who published: "
            f"{error}. To go on, start the query once with the option repeatUnknown=true: rows that are not known to "
            "be stored are published then, and up to so many may be there twice"
        ) from None
