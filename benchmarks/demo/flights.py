"""Flights of the demo, and checks that they arrived as sent."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seaweedmq.errors import SeaweedMQError
from seaweedmq.examples.nyc import MOMENT, read_csv

COUNT = 336_776
KEY = "tailnum"
ROW = "row"
"""Column added to the flights: their position in the file."""


class DemoFailed(SeaweedMQError):
    """A failed check of the demo."""


def check(holds: bool, message: str) -> None:
    """Raise DemoFailed unless the condition holds."""
    if not holds:
        raise DemoFailed(message)


def read_flights(path: Path) -> pa.Table:
    """Read the flights with their row numbers, and times in microseconds as in Kafka and Spark."""
    table = read_csv(path)
    index = table.schema.get_field_index("time_hour")
    table = table.set_column(index, "time_hour", table.column(index).cast(MOMENT))
    check(table.num_rows == COUNT, f"{path} has {table.num_rows} flights, {COUNT} expected")
    return table.append_column(ROW, pa.array(range(table.num_rows), pa.int64())).combine_chunks()


def verify(flights: pa.Table, batches: Sequence[pa.RecordBatch]) -> int:
    """Check that every flight arrived once and unchanged, and those of one plane in order.

    Args:
        flights: Flights as sent.
        batches: Records as received.

    Returns:
        The number of planes.

    Raises:
        DemoFailed: If one did not; the message says why.
    """
    arrived = pa.Table.from_batches(batches)
    rows = arrived.column(ROW).to_numpy()
    counts = np.bincount(rows, minlength=flights.num_rows)
    check(len(counts) == flights.num_rows, "a row number arrived that was never sent")
    missing, repeated = int((counts == 0).sum()), int((counts > 1).sum())
    check(missing == repeated == 0, f"{missing} flights are missing and {repeated} came more than once")
    in_order = arrived.select(flights.schema.names).take(np.argsort(rows))
    check(in_order.combine_chunks().equals(flights), "a flight arrived changed")
    keys = arrived.column(KEY).combine_chunks().cast(pa.binary())
    check(arrived.column("_key").combine_chunks().equals(keys), "a record's key is not its plane")
    has_key = pc.is_valid(keys).to_numpy(zero_copy_only=False)
    planes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False)[has_key].astype(np.int64)
    by_plane = np.argsort(planes, kind="stable")  # keeps the order of arrival within a plane
    planes, rows = planes[by_plane], rows[has_key][by_plane]
    wrong = int(((np.diff(planes) == 0) & (np.diff(rows) <= 0)).sum())
    check(wrong == 0, f"{wrong} flights came before an earlier one of the same plane")
    return int(planes[-1]) + 1
