"""Columns made without pandas are equal to Arrow's."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec import arrays
from seaweedmq.codec.arrays import array_of, binary_of

FIRST_RECORD = """
import sys
from seaweedmq.client.publish.batches.batch import Batch
batch = Batch(1 << 20, 0, 0.0, lambda _: None)
for value in (b"a", b"bc"):
    batch.values.append(value)
batch.cut()
(rows,) = batch.rows(1 << 20)
assert rows.columns.column(0).to_pylist() == [b"a", b"bc"]
assert "pandas" not in sys.modules
"""


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=40))
def test_binary_columns_with_and_without_nulls(values: list[bytes | None]) -> None:
    column = binary_of(values)
    column.validate(full=True)
    assert (column, column.null_count) == (pa.array(values, pa.binary()), values.count(None))


def test_more_than_a_column_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "OFFSET_MAX", 3)
    assert len(binary_of([b"abc"])) == 1
    with pytest.raises(pa.ArrowCapacityError, match="4 bytes do not fit"):
        binary_of([b"abc", b"d"])


def test_numbers() -> None:
    assert array_of(np.array([1, 2], np.int64), pa.int64()).to_pylist() == [1, 2]


def test_the_first_record_of_a_client_does_not_wait_for_pandas() -> None:
    subprocess.run([sys.executable, "-c", FIRST_RECORD], check=True)
