"""Conversion of the flights to records and back: a JSON object each, keyed by the plane, whole columns at a time.

Two publishers share them. One of them publishes all flights of a plane, since two publishers keep no order between
them.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from benchmarks.demo.flights import KEY, check
from seaweedmq.codec.murmur2 import partitions_of

SPECIAL = r'["\\\x00-\x1f]'
"""Characters that JSON would have to escape."""
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
PLACE = "_partition", "_offset"
ARRIVED = pa.schema(
    [("_partition", pa.int32()), ("_offset", pa.int64()), ("_key", pa.binary()), ("_value", pa.binary())]
)
"""Columns of received records, in the order of arrival."""


def to_records(flights: pa.Table) -> pa.Table:
    """Return columns ``_key`` and ``_value``, a row for each flight."""
    parts: list[str | pa.ChunkedArray] = []
    for name in flights.column_names:
        parts += [f'{"," if parts else "{"}"{name}":', _json(flights.column(name))]
    values = pc.binary_join_element_wise(*parts, "}", "")
    return pa.table({"_key": flights.column(KEY).cast(pa.binary()), "_value": values.cast(pa.binary())})


def from_records(arrived: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    """Return the flights that records hold, with this schema, and their ``_key``."""
    lines = pa.BufferReader(b"\n".join(arrived.column("_value").to_pylist()))
    options = pa.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error")
    flights = pa.json.read_json(lines, parse_options=options).combine_chunks()
    keys = arrived.column("_key").combine_chunks()
    return flights.append_column("_key", keys).to_batches()[0]


def _json(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_timestamp(column.type):
        column = pc.strftime(column.cast(pa.timestamp("s", tz="UTC")), format=TIME_FORMAT)
    if pa.types.is_string(column.type):
        check(not pc.any(pc.match_substring_regex(column, SPECIAL)).as_py(), "a text of the flights is not plain")
        column = pc.binary_join_element_wise('"', column, '"', "")
    return pc.fill_null(column.cast(pa.string()), "null")


def halves(records: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Divide records into two halves by plane; those without a plane alternate."""
    planes = records.column("_key").combine_chunks().dictionary_encode().indices
    numbers = pc.coalesce(planes, pa.array(np.arange(len(planes)), planes.type)).to_numpy()
    return records.filter(pa.array(numbers % 2 == 0)), records.filter(pa.array(numbers % 2 == 1))


class Arrived(NamedTuple):
    """The records that a group received."""

    records: pa.Table
    """Records without repeats, in the order of first arrival."""
    repeated: int
    """Number of records that arrived again."""


def arrived(pieces: list[pa.Table]) -> Arrived:
    """Remove repeats from the pieces, given in the order of arrival; partition and offset identify a record."""
    whole = pa.concat_tables(pieces).combine_chunks()
    partitions, offsets = (whole.column(name).to_numpy().astype(np.int64) for name in PLACE)
    firsts = np.sort(np.unique(partitions << 40 | offsets, return_index=True)[1])
    return Arrived(whole.take(pa.array(firsts)), whole.num_rows - len(firsts))


def check_places(records: pa.Table, partitions: int) -> None:
    """Check that a record's partition depends on its plane alone, for both publishers. Raises DemoFailed."""
    keys = records.column("_key").combine_chunks()
    found = records.column("_partition").to_numpy()
    expected = partitions_of(keys, partitions)
    wrong = int((keys.is_valid().to_numpy(zero_copy_only=False) & (found != expected)).sum())
    check(wrong == 0, f"{wrong} flights are in another partition than their plane's")


def same_places(left: pa.Table, right: pa.Table) -> bool:
    """Whether two groups received the same records at the same offsets."""
    return bool(_by_place(left).equals(_by_place(right)))


def _by_place(records: pa.Table) -> pa.Table:
    order: npt.NDArray[np.int64] = np.lexsort([records.column(name).to_numpy() for name in reversed(PLACE)])
    return records.select(ARRIVED.names).take(pa.array(order)).combine_chunks()
