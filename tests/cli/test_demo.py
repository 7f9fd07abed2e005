"""The demo notices whatever goes wrong, and ends with `demo: OK` when nothing does."""

import subprocess
import sys
from collections.abc import Callable

import pyarrow as pa
import pytest

from seaweedmq.cli.demo.flights import KEY, ROW, DemoFailed, flights_path, read_flights, verify

Batches = list[pa.RecordBatch]
BATCH_ROWS = 1_000


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights(flights_path())


@pytest.fixture
def batches(flights: pa.Table) -> Batches:
    """The flights as a subscriber gets them when all is well."""
    whole = flights.append_column("_key", flights.column(KEY).cast(pa.binary())).combine_chunks()
    return list(whole.to_batches(max_chunksize=BATCH_ROWS))


def test_flights_that_came_as_they_were_sent_are_right(flights: pa.Table, batches: Batches) -> None:
    assert verify(flights, batches) == 4_043


def changed(batch: pa.RecordBatch, name: str, column: pa.Array) -> pa.RecordBatch:
    return batch.set_column(batch.schema.get_field_index(name), name, column)


def swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.take(pa.array(range(batch.num_rows - 1, -1, -1)))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda b: b[:-1], "776 flights are missing and 0 came more than once"),
        (lambda b: [*b, b[0]], "0 flights are missing and 1000 came more than once"),
        (lambda b: [*b[1:], b[0]], "came before an earlier one of the same plane"),
        (lambda b: [swapped(b[0]), *b[1:]], "came before an earlier one of the same plane"),
        (lambda b: [changed(b[0], "carrier", pa.array(["??"] * BATCH_ROWS)), *b[1:]], "a flight arrived changed"),
        (lambda b: [changed(b[0], "_key", pa.array([b"?"] * BATCH_ROWS)), *b[1:]], "a record's key is not its plane"),
        (lambda b: [changed(b[0], ROW, pa.array([999_999] * BATCH_ROWS)), *b[1:]], "that was never sent"),
    ],
)
def test_any_damage_is_noticed(
    flights: pa.Table, batches: Batches, damage: Callable[[Batches], Batches], message: str
) -> None:
    with pytest.raises(DemoFailed, match=message):
        verify(flights, damage(batches))


@pytest.mark.integration
@pytest.mark.timeout(180)
def test_the_demo_ends_well() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "seaweedmq.cli.demo"], capture_output=True, text=True, timeout=170, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("demo: OK\n")
    assert "Spark and the CSV agree" in done.stdout
