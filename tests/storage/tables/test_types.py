"""Columns of every type that a topic may have, through a table and back."""

import pyarrow as pa
import pytest

from seaweedmq.codec.frame import HEADER_BYTES, SCHEMA_VERSION_SHIFT, split_frames, stamp
from seaweedmq.codec.payload.batch import decode_frame, encode_frame, schema_to_bytes
from seaweedmq.storage.store.files import FileSegmentStore
from seaweedmq.storage.tables.files import convert_files
from seaweedmq.storage.tables.reader import TableReader
from tests.codec.test_topic_schema import CARRIED
from tests.support.segments import T0, logs_of, make_topic, tables_of, write_log


def frame_of(batch: pa.RecordBatch, base: int) -> bytes:
    identity = {"flags": 1 << SCHEMA_VERSION_SHIFT, "producer_id": 1, "producer_epoch": 0, "first_sequence": base}
    slots = {"slot_min": 0, "slot_max": 0, "histogram": (0,) * 16}
    frame = encode_frame(batch, timestamp_min=T0, timestamp_max=T0, **identity, **slots)
    return stamp(frame[:HEADER_BYTES], base) + frame[HEADER_BYTES:]


@pytest.mark.parametrize(("kind", "values"), [*CARRIED, (pa.list_(pa.time32("s")), [[1], None])], ids=str)
async def test_a_table_gives_what_a_log_held(store: FileSegmentStore, kind: pa.DataType, values: list[object]) -> None:
    schema = pa.schema([pa.field("c", kind)])
    topic = make_topic(schema_to_bytes(schema))
    batch = pa.RecordBatch.from_arrays([pa.array(values, kind)], schema=schema)
    await write_log(store, 0, [frame_of(batch, 0), frame_of(batch, len(values))])
    convert_files(store.place, topic, await logs_of(store), None, 1_000_000)
    (table,) = await tables_of(store)
    reader = TableReader(store.place.open_input(table), table, topic, 0, 2 * len(values), chunk_bytes=1_000)
    found: list[pa.RecordBatch] = []
    while (chunks := reader.next()) is not None:
        found += [decode_frame(frame, schema) for chunk in chunks for frame in split_frames(chunk.data)]
    reader.close()
    assert pa.Table.from_batches(found)["c"].combine_chunks().equals(pa.concat_arrays([batch.column(0)] * 2))
