"""The partition of a key is the one that Kafka's Java client picks."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.murmur2 import murmur2, partitions_of
from seaweedmq.errors import InvalidArgument
from tests.support.kafka_wire import partition_of

VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Cases of ``UtilsTest.testMurmur2`` in Apache Kafka, signed as Java has them."""


@pytest.mark.parametrize("key", VECTORS)
def test_the_hash_is_that_of_kafka(key: bytes) -> None:
    assert (murmur2(key), partition_of(key, 7)) == (VECTORS[key] & 0xFFFFFFFF, (VECTORS[key] & 0x7FFFFFFF) % 7)


@given(st.lists(st.none() | st.binary(max_size=40), max_size=200), st.integers(1, 4_096), st.integers(0, 50))
def test_a_column_gives_what_its_keys_give(keys: list[bytes | None], partitions: int, skipped: int) -> None:
    column = pa.array(keys, pa.binary()).slice(skipped)
    expected = [partition_of(key or b"", partitions) for key in keys[skipped:]]
    assert partitions_of(column, partitions).tolist() == expected


def test_a_long_column_of_any_lengths() -> None:
    keys = [bytes(range(number % 70)) for number in range(20_000)]
    found = partitions_of(pa.array(keys, pa.binary()), 12)
    assert found.tolist() == [partition_of(key, 12) for key in keys]
    assert np.bincount(found).min() > 0


def test_text_counts_as_utf_8_and_numbers_are_refused() -> None:
    assert partitions_of(pa.array(["é"] * 100), 1_000)[99] == partition_of("é".encode(), 1_000)
    with pytest.raises(InvalidArgument, match="a key is binary, cast the column"):
        partitions_of(pa.array([1]), 3)
