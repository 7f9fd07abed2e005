"""Publication of what tasks have staged: the driver writes one manifest and publishes its rows exactly once."""

import logging
from collections.abc import Sequence
from functools import partial

from xxhash import xxh3_64_intdigest

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.publish.staged_publisher import StagedPublisher, one_thread, recreated, staged_segment_of
from seaweedmq.client.publish.staged_sender import Search
from seaweedmq.errors import InvalidArgument, OutOfRange, SeaweedMQError, Unavailable
from seaweedmq.model.description import OPEN
from seaweedmq.model.producer import NATIVE_PRODUCER_BIT
from seaweedmq.model.ring import KeyRange, covers_ring
from seaweedmq.model.segment import Segment
from seaweedmq.model.staged import CompletedBatch, Manifest, SegmentProgress, StagedFile
from seaweedmq.model.topic import Topic
from seaweedmq.spark.write.sink_options import SinkOptions
from seaweedmq.spark.write.sink_plan import again, check_storage, connected, open_ranges
from seaweedmq.storage.place import Place
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.read.producer_lookup import stored_sequence
from seaweedmq.storage.staging import StagedBatch, StagedSink

log = logging.getLogger(__name__)

_BATCHES_MAX = 2**32
"""Limit of batch numbers: producer epochs end there."""


async def publish_staged(
    options: SinkOptions,
    sink_id: str,
    number: int,
    files: Sequence[StagedFile],
    topic_uid: int,
    *,
    is_last: bool = False,
) -> int:
    """Publish a batch, or the rest of it, and return its number of rows; 0 if it was already published.

    ``files`` are those that tasks staged for this batch of the topic with ``topic_uid``, in the order of the rows.
    After the last batch of a sink no completion mark is written.

    NotFound is raised if the topic was deleted or recreated since, OutOfRange if it is no longer known which rows of
    the batch are stored (see the option ``repeatUnknown``), InvalidArgument as by :func:`check_repeat` and
    ``check_storage``.
    """
    if not 0 <= number < _BATCHES_MAX:
        raise InvalidArgument(f"batch {number} of {sink_id}: a sink has batches from 0 to {_BATCHES_MAX - 1}")
    place = parse_place(options.storage)
    sink = StagedSink(place, options.topic, sink_id)
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
        if is_resumed:  # regardless of its age: a clock set back since would make an old batch seem young
            search = partial(_search, place, described.topic, manifest, batch.begun_us(), options.repeat_unknown)
        await _publish(cluster, described.topic, manifest, batch, search)
        ranges = () if is_last else await _ranges_now(cluster, options, manifest)
    if not is_last:
        sink.finish(CompletedBatch(batch=number, ranges=ranges, checkpoint=options.checkpoint))
    return manifest.record_count


async def _ranges_now(cluster: Cluster, options: SinkOptions, manifest: Manifest) -> tuple[KeyRange, ...]:
    """Return the slot ranges for the next batch; an error here does not fail this batch."""
    try:
        return open_ranges(await cluster.describe(options.topic, OPEN))
    except SeaweedMQError as error:
        log.warning(
            "segments not updated: %s, the next batch is staged for those of the previous one: %s", options.topic, error
        )
        return tuple(root.slots for root in manifest.roots)


async def _manifest(
    cluster: Cluster, sink_id: str, number: int, files: Sequence[StagedFile], topic_uid: int, options: SinkOptions
) -> Manifest:
    """Return the manifest of a new batch; Unavailable during a transition, when segments do not cover the ring."""
    described = await cluster.describe(options.topic, OPEN, uid=topic_uid)
    topic = described.topic
    roots = tuple(staged_segment_of(segment) for segment in described.segments if segment.is_open)
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
    """Raise InvalidArgument if a batch that is published again may have other rows, which dropping would lose.

    Spark repeats the last batch of a query after a crash. Any other repeat comes from a checkpoint that is not this
    query's alone. ``last`` is the last batch that the sink knows; a location of a checkpoint is "" if unknown.
    """
    if number < last:
        why = f"batches up to {last} of the query are published"
    elif checkpoint and last_checkpoint and checkpoint != last_checkpoint:
        why = f"a query with the checkpoint {last_checkpoint} wrote a batch with this number"
    else:
        return
    raise InvalidArgument(
        f"batch {number} of the query with the checkpoint {checkpoint or '(not known)'} is not written: {why}, so the "
        "checkpoint is a copy or out of date: resume from the checkpoint that was used last, in its original location, "
        "or set a new checkpointLocation"
    )


def producer_of(sink_id: str, topic: Topic) -> int:
    """Return the producer id under which a sink always publishes to a topic."""
    identity = f"{sink_id}/{topic.name}/{topic.uid}".encode()
    return int(xxh3_64_intdigest(identity)) >> 2 | NATIVE_PRODUCER_BIT


async def _publish(
    cluster: Cluster, topic: Topic, manifest: Manifest, batch: StagedBatch, search: Search | None
) -> None:
    progress = batch.progress()
    frames = batch.frames(manifest.files)
    try:
        async with one_thread() as offload:
            await StagedPublisher(cluster, topic, manifest, progress, frames, batch.note, search, offload).run()
    finally:
        frames.close()


def _search(
    place: Place,
    topic: Topic,
    manifest: Manifest,
    since_us: int,
    repeat_unknown: bool,
    segment: Segment,
    reached: SegmentProgress,
) -> int:
    """Return what the files show of a segment that does not know the producer; OutOfRange if they no longer show it."""
    try:
        return stored_sequence(
            place,
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
            f"batch {manifest.batch} was begun longer ago than brokers keep producer state, and not finished: "
            f"{error}. To continue, start the query once with the option repeatUnknown=true: it publishes the rows "
            "that are not known to be stored, and may duplicate up to that many"
        ) from None
