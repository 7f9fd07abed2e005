"""Records by reference in batches for Kafka clients: the reference as JSON, under a header of its own."""

import json

import pyarrow as pa

from seaweedmq.codec.kafka.build import batches_of
from seaweedmq.codec.kafka.columns import columns_of
from seaweedmq.codec.payload.batch import full_schema
from seaweedmq.codec.references import KAFKA_HEADER, column_of, reference_json
from tests.codec.samples import HEADERS, NOON_US, REFERENCE, TIMESTAMP


def test_the_value_is_the_reference_and_other_records_are_as_before() -> None:
    headers = [[("title", b"Metropolis"), (KAFKA_HEADER, b"forged")], [(KAFKA_HEADER, b"kept")], None]
    columns = [
        pa.array([b"film", b"note", b"gone"], pa.binary()),
        pa.array([NOON_US] * 3, TIMESTAMP),
        pa.array(headers, HEADERS),
        pa.array([None, b"small", None], pa.binary()),
        column_of([REFERENCE, None, None]),
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=full_schema(None, has_references=True))
    (batch,) = batches_of(rows, 40, 7, 1 << 20)
    found = columns_of(batch, unpacked_bytes_max=1 << 20)
    assert found.key.to_pylist() == [b"film", b"note", b"gone"]
    assert found.value.to_pylist() == [reference_json(REFERENCE), b"small", None]
    assert json.loads(found.value[0].as_py())["uri"] == REFERENCE.uri
    expected = [[("title", b"Metropolis"), (KAFKA_HEADER, b"1")], [(KAFKA_HEADER, b"kept")], None]
    assert [items or None for items in found.headers.to_pylist()] == expected
