"""Frames, log files and topics for the tests of storage."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from seaweedmq.codec.frame import (
    FLAG_HEADERS,
    FLAG_KEY,
    FLAG_TIMESTAMP,
    HEADER_BYTES,
    SCHEMA_VERSION_SHIFT,
    split_frames,
    stamp,
)
from seaweedmq.codec.logfile import LogPreamble, encode_preamble
from seaweedmq.codec.payload.batch import decode_frame, encode_frame, full_batch, payload_schema, schema_from_bytes
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.ring import WHOLE_RING
from seaweedmq.model.segment import ProducerState, Segment, SegmentState
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName
from seaweedmq.ports import LogWriter, SegmentStore

NAME = TopicName("shop", "orders")
T0 = 1_700_000_000_000_000
UTC_US = pa.timestamp("us", tz="UTC")


def make_topic(schema: bytes | None = None, uid: int = 7) -> Topic:
    return Topic(
        name=NAME,
        uid=uid,
        replicas=1,
        durability=Durability.STORED,
        scaling=Scaling.AUTO,
        schema=schema,
        retention_s=None,
        retention_bytes=None,
        next_segment=1,
        created_us=T0,
    )


def make_segment(end_offset: int | None = None, start_offset: int = 0) -> Segment:
    return Segment(
        topic=NAME,
        id=0,
        slots=WHOLE_RING,
        epoch=1,
        state=SegmentState.OPEN if end_offset is None else SegmentState.SEALED,
        replicas=("b-1",),
        start_offset=start_offset,
        end_offset=end_offset,
    )


def make_frame(
    base: int,
    count: int,
    *,
    keys: bool = False,
    stamps: bool = False,
    headers: bool = False,
    size: int = 20,
    producer: int = 1,
    first_sequence: int | None = None,
    schema: pa.Schema | None = None,
) -> bytes:
    """Return a frame of records ``base ... base + count``, one second apart, with their offsets as values and keys."""
    offsets = range(base, base + count)
    flags = (FLAG_KEY if keys else 0) | (FLAG_TIMESTAMP if stamps else 0) | (FLAG_HEADERS if headers else 0)
    flags |= (0 if schema is None else 1) << SCHEMA_VERSION_SHIFT
    times = [T0 + 1_000_000 * o for o in offsets]
    columns: list[pa.Array] = []
    if keys:
        columns.append(pa.array([b"key-%d" % o for o in offsets], pa.binary()))
    if stamps:
        columns.append(pa.array(np.array(times, np.int64)).view(UTC_US))
    if headers:
        columns.append(pa.array([[("h", b"%d" % o)] for o in offsets], pa.map_(pa.string(), pa.binary())))
    if schema is None:
        columns.append(pa.array([value_of(o, size) for o in offsets], pa.binary()))
    else:
        columns += [pa.array(list(offsets), f.type) for f in schema]
    frame = encode_frame(
        pa.RecordBatch.from_arrays(columns, schema=payload_schema(flags, schema)),
        flags=flags,
        producer_id=producer,
        producer_epoch=0,
        first_sequence=base if first_sequence is None else first_sequence,
        timestamp_min=times[0],
        timestamp_max=times[-1] if stamps else times[0],
        slot_min=0,
        slot_max=0,
        histogram=(count,) + (0,) * 15,
    )
    return stamp(frame[:HEADER_BYTES], base) + frame[HEADER_BYTES:]


def value_of(offset: int, size: int = 20) -> bytes:
    return (b"value-%d." % offset).ljust(size, b"x")


def make_preamble(
    base: int,
    writer: str = "b-1",
    uid: int = 7,
    producers: Sequence[ProducerState] = (),
    segment: int = 0,
    flushed: int | None = None,
    topic: TopicName = NAME,
) -> bytes:
    return encode_preamble(
        LogPreamble(
            topic=topic,
            topic_uid=uid,
            segment=segment,
            base_offset=base,
            writer=writer,
            flushed=flushed,
            producers=tuple(producers),
        )
    )


async def begin_log(
    store: SegmentStore,
    base: int,
    *,
    writer: str = "b-1",
    uid: int = 7,
    producers: Sequence[ProducerState] = (),
    segment: int = 0,
    flushed: int | None = None,
) -> LogWriter:
    preamble = make_preamble(base, writer, uid, producers, segment, flushed)
    return await store.create_log(NAME, segment, base, writer, preamble)


async def write_log(
    store: SegmentStore,
    base: int,
    frames: Sequence[bytes],
    *,
    writer: str = "b-1",
    uid: int = 7,
    producers: Sequence[ProducerState] = (),
    segment: int = 0,
    flushed: int | None = None,
) -> SegmentFile:
    """Write a log file of these bytes, sync and close it."""
    log = await begin_log(store, base, writer=writer, uid=uid, producers=producers, segment=segment, flushed=flushed)
    await log.append(frames)
    await log.sync()
    await log.close()
    return next(f for f in await store.list_files(NAME, segment) if f.path == log.path)


async def logs_of(store: SegmentStore) -> list[SegmentFile]:
    return [f for f in await store.list_files(NAME, 0) if f.kind is FileKind.LOG]


async def tables_of(store: SegmentStore, segment: int = 0) -> list[SegmentFile]:
    return [f for f in await store.list_files(NAME, segment) if f.kind is FileKind.TABLE]


def records_of(data: bytes | memoryview, topic: Topic | None = None) -> list[tuple[int, dict[str, object]]]:
    """Return offset and columns of every record of some frames, after checks."""
    schema = None if topic is None or topic.schema is None else schema_from_bytes(topic.schema)
    records: list[tuple[int, dict[str, object]]] = []
    for frame in split_frames(data):
        typed = schema if frame.header.schema_version else None
        rows = full_batch(decode_frame(frame, typed), frame.header, typed).to_pylist()
        records += [(frame.header.base_offset + i, row) for i, row in enumerate(rows)]
    return records
