"""Kafka clients read record batches built from columns without a change of the records."""

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.kafka.batch import check_batch
from seaweedmq.codec.kafka.build import batches_of
from seaweedmq.codec.kafka.columns import columns_of
from seaweedmq.codec.kafka.header import read_header
from seaweedmq.codec.payload.batch import PLAIN_SCHEMA, TIMESTAMP
from tests.support.kafka_batches import T0_MS, UNPACKED_BYTES_MAX, Record, records_in

rows = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=20),
        st.integers(-62_135_596_800_000_000, 253_402_300_799_999_999) | st.integers(-3_000, 3_000),
        st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
        st.none() | st.binary(max_size=60),
    ),
    min_size=1,
    max_size=60,
)


def table_of(found: list[tuple[object, ...]]) -> pa.RecordBatch:
    keys, times, headers, values = zip(*found, strict=True)
    columns = [
        pa.array(keys, pa.binary()),
        pa.array(np.array(times, np.int64)).view(TIMESTAMP),
        pa.array(headers, PLAIN_SCHEMA.field("_headers").type),
        pa.array(values, pa.binary()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PLAIN_SCHEMA)


@given(rows, st.integers(100, 2_000), st.integers(0, 1 << 50), st.integers(0, 5))
def test_they_are_read_as_they_were(found: list[tuple[object, ...]], bytes_max: int, base: int, skipped: int) -> None:
    kept = found[skipped:]
    batches = batches_of(table_of(found).slice(skipped), base, 7, bytes_max)
    read: list[Record] = []
    for batch in batches:
        header = read_header(batch)
        assert (header.base_offset, header.leader_epoch, header.producer_id) == (base + len(read), 7, -1)
        assert len(batch) <= bytes_max or header.record_count == 1
        checked = check_batch(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX)
        assert header.max_timestamp_ms * 1_000 == checked.timestamp_max_us
        read += records_in(batch)
        values = columns_of(batch, unpacked_bytes_max=UNPACKED_BYTES_MAX).value.to_pylist()
        assert values == [record.value for record in read[-header.record_count :]]
    assert read == [
        Record(key, value, tuple(headers or ()), us // 1_000)  # type: ignore[arg-type, operator]
        for key, us, headers, value in kept
    ]


@pytest.mark.parametrize("count", [0, 1, 5_000])
def test_batches_are_as_full_as_they_may_be(count: int) -> None:
    table = table_of([(b"k", T0_MS * 1_000 + n, None, b"v" * 100) for n in range(count)]) if count else None
    batches = batches_of(table if table is not None else table_of([(b"", 0, None, b"")]).slice(1), 40, 1, 10_000)
    assert sum(read_header(batch).record_count for batch in batches) == count
    assert all(9_800 < len(batch) <= 10_000 for batch in batches[:-1])


def test_a_record_larger_than_a_batch_travels_alone() -> None:
    sizes = [10, 5_000, 10]
    batches = batches_of(table_of([(None, 0, None, b"v" * size) for size in sizes]), 0, 1, 1_000)
    assert [read_header(batch).record_count for batch in batches] == [1, 1, 1]


def test_clients_read_batches_one_behind_the_other() -> None:
    table = table_of([(b"k", 1_000 * n, [("h", None)], None if n % 3 else b"v%d" % n) for n in range(500)])
    wire = MemoryRecords(b"".join(batches_of(table, 100, 1, 1_000)))
    offsets, values = [], []
    while wire.has_next():
        batch = wire.next_batch()
        assert batch is not None
        assert batch.validate_crc()
        for record in batch:
            offsets.append(record.offset)
            values.append(record.value)
    assert (offsets, values) == (list(range(100, 600)), [None if n % 3 else b"v%d" % n for n in range(500)])
