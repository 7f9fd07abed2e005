"""The demo detects every kind of error, and ends with `demo: OK` when there is none."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.demo.__main__ import check_streams
from benchmarks.demo.flights import KEY, ROW, DemoFailed, read_flights, verify
from benchmarks.demo.records import ARRIVED, Arrived, arrived, from_records, halves, to_records
from benchmarks.demo.streams import PARTITIONS, Streamed
from benchmarks.demo.windows import check_hours
from seaweedmq.codec.murmur2 import partitions_of
from seaweedmq.examples.nyc import delays_by_hour, flights_path
from seaweedmq.examples.nyc import flights as nyc_flights

Batches = list[pa.RecordBatch]
BATCH_ROWS = 1_000


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return read_flights(flights_path())


@pytest.fixture
def batches(flights: pa.Table) -> Batches:
    """Return the flights as a subscriber gets them without errors."""
    whole = flights.append_column("_key", flights.column(KEY).cast(pa.binary())).combine_chunks()
    return list(whole.to_batches(max_chunksize=BATCH_ROWS))


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
def test_any_damage(flights: pa.Table, batches: Batches, damage: Callable[[Batches], Batches], message: str) -> None:
    with pytest.raises(DemoFailed, match=message):
        verify(flights, damage(batches))
    assert verify(flights, batches) == 4_043


@pytest.fixture(scope="module")
def some(flights: pa.Table) -> pa.Table:
    return flights.slice(0, 20_000)


@pytest.fixture(scope="module")
def records(some: pa.Table) -> pa.Table:
    return to_records(some)


def test_a_flight_is_a_json_object_and_back_again(some: pa.Table, records: pa.Table) -> None:
    first = json.loads(records.column("_value")[0].as_py())
    assert first == {name: _plain(some.column(name)[0].as_py()) for name in some.column_names}
    assert from_records(records, some.schema).select(some.column_names).to_pylist() == some.to_pylist()


def _plain(value: object) -> object:
    return value.strftime("%Y-%m-%dT%H:%M:%SZ") if isinstance(value, datetime) else value


def test_a_plane_is_published_by_one_publisher_and_each_has_about_half(some: pa.Table, records: pa.Table) -> None:
    left, right = halves(records)
    assert left.num_rows + right.num_rows == some.num_rows
    assert abs(left.num_rows - right.num_rows) < some.num_rows / 50
    of_left, of_right = (set(half.column("_key").unique().to_pylist()) for half in (left, right))
    assert of_left & of_right == {None}
    assert left.column("_key").null_count
    assert right.column("_key").null_count


@pytest.fixture(scope="module")
def got(records: pa.Table) -> pa.Table:
    """Return all records as a group gets them without errors: one partition after another."""
    keys = records.column("_key").combine_chunks()
    partitions = partitions_of(keys, PARTITIONS).astype(np.int32)
    order = np.argsort(partitions, kind="stable")
    offsets = np.concatenate([np.arange(count) for count in np.bincount(partitions)])
    columns = [pa.array(partitions[order]), pa.array(offsets), *records.take(pa.array(order)).columns]
    return pa.table(columns, schema=ARRIVED)


def test_what_both_groups_got_is_right(some: pa.Table, got: pa.Table) -> None:
    check_streams(some, Streamed(arrived([got]), arrived([got]), rebalances=0))


def test_records_that_come_again_are_told_by_where_they_lie(got: pa.Table) -> None:
    again = arrived([got.slice(0, 1_000), got.slice(500, 1_000), got.slice(1_500)])
    assert again.repeated == 500
    assert again.records.equals(got)


def test_a_record_may_come_again_to_who_had_to_share_out_anew(some: pa.Table, got: pa.Table) -> None:
    check_streams(some, Streamed(Arrived(got, repeated=1), Arrived(got, 0), rebalances=1))
    with pytest.raises(DemoFailed, match="1 flights came to Kafka's group again, without a rebalance"):
        check_streams(some, Streamed(Arrived(got, repeated=1), Arrived(got, 0), rebalances=0))
    with pytest.raises(DemoFailed, match="1 flights came to SeaweedMQ's group again"):
        check_streams(some, Streamed(Arrived(got, 0), Arrived(got, repeated=1), rebalances=1))


def test_groups_that_see_other_partitions_or_other_records_are_noticed(some: pa.Table, got: pa.Table) -> None:
    moved = got.set_column(0, "_partition", pa.array((got.column(0).to_numpy() + 1) % PARTITIONS, pa.int32()))
    with pytest.raises(DemoFailed, match="in another partition than their plane's"):
        check_streams(some, Streamed(Arrived(moved, 0), Arrived(got, 0), 0))
    later = got.set_column(1, "_offset", pa.array(got.column(1).to_numpy() + 1))
    with pytest.raises(DemoFailed, match="different flights at an offset"):
        check_streams(some, Streamed(Arrived(later, 0), Arrived(got, 0), 0))


@pytest.fixture(scope="module")
def hours() -> pa.Table:
    """Return the correct result of Spark for two days."""
    return delays_by_hour(nyc_flights(1, 2))


def as_they_come(hours: pa.Table) -> pa.Table:
    """Return the hours in another order, with their keys."""
    moved = hours.take(pa.array(range(hours.num_rows - 1, -1, -1)))
    return moved.append_column("_key", moved.column("origin").cast(pa.binary()))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t: pa.concat_tables([t, t.slice(0, 2)]), "2 hours came more than once"),
        (lambda t: t.slice(1), "1 of 109 hours are missing"),
        (lambda t: t.set_column(9, "_key", pa.array([b"EWR"] * t.num_rows)), "an hour's key is not its airport"),
        (lambda t: t.set_column(2, "flights", pa.array([1] * t.num_rows)), "hours have another flights than the CSV"),
        (lambda t: t.set_column(5, "temp", pa.array([None] * t.num_rows)), "hours have another temp than the CSV"),
    ],
)
def test_damage_of_the_hours_is_noticed(hours: pa.Table, damage: Callable[[pa.Table], pa.Table], message: str) -> None:
    check_hours(as_they_come(hours), hours)
    with pytest.raises(DemoFailed, match=message):
        check_hours(damage(as_they_come(hours)), hours)
    with pytest.raises(DemoFailed, match="1 hours came that do not exist, or were not closed"):
        check_hours(as_they_come(hours), hours.slice(0, hours.num_rows - 1))


@pytest.mark.integration
@pytest.mark.timeout(300)
def test_the_demo_ends_well() -> None:
    command = [sys.executable, "-m", "benchmarks.demo"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=290, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("demo: OK\n")
    assert "killing broker" in done.stdout
    assert "both groups got every flight once and unchanged, in order for each of 4,043 planes" in done.stdout
    streamed = r"Spark streamed 336,776 flights in \d+ batches to 19,431 hours, each once and equal to"
    assert re.search(streamed, done.stdout)
    assert len(re.findall(r"^  2013-.* flights .* hours so far\)$", done.stdout, re.MULTILINE)) >= 2
    assert "Spark and the CSV agree" in done.stdout
