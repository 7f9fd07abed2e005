"""Conversion of Arrow columns to Python values, including times that Python lacks.

Arrow's times reach further than Python's ``datetime``: the year 12,000, the end of the year 9999 in a zone east of
Greenwich, a duration of more than 2.7 million years, a time in a zone that this machine does not know. ``to_pylist``
raises for a whole column because of one such value.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa


def python_values(column: pa.Array) -> list[Any]:
    """Return the values as of ``to_pylist``.

    An instant whose local time Python lacks is in UTC, and any other time that Python lacks is the stored number, an
    int.
    """
    try:
        values: list[Any] = column.to_pylist()
    except (ValueError, OverflowError, LookupError):  # an unknown zone is one of these, by the library that looks it up
        return _one_by_one(column)
    return values


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return each row as a dict of its columns, with the values of :func:`python_values`."""
    return _dicts(batch.schema.names, batch.columns, batch.num_rows)


def _one_by_one(column: pa.Array) -> list[Any]:
    kind = column.type
    if isinstance(kind, pa.BaseExtensionType):
        return _one_by_one(column.storage)
    if pa.types.is_dictionary(kind):
        return _one_by_one(column.dictionary_decode())
    if pa.types.is_struct(kind):
        names = [kind.field(i).name for i in range(kind.num_fields)]
        rows = _dicts(names, column.flatten(), len(column))
        return [row if valid else None for row, valid in zip(rows, _valid(column), strict=True)]
    if pa.types.is_map(kind):
        return [None if items is None else [tuple(item.values()) for item in items] for items in _lists(column)]
    if pa.types.is_nested(kind):
        return list(_lists(column))
    return [_value(scalar) for scalar in column]


def _dicts(names: Sequence[str], columns: Iterable[pa.Array], count: int) -> list[dict[str, Any]]:
    values = [python_values(column) for column in columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=True)] if values else [{}] * count


def _lists(column: pa.Array) -> Iterable[list[Any] | None]:
    return (python_values(scalar.values) if scalar.is_valid else None for scalar in column)


def _valid(column: pa.Array) -> list[bool]:
    valid: list[bool] = column.is_valid().to_pylist()
    return valid


def _value(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError, LookupError):
        if not pa.types.is_temporal(scalar.type):
            raise
    if pa.types.is_timestamp(scalar.type) and scalar.type.tz is not None:
        try:
            return pa.scalar(scalar.value, pa.timestamp(scalar.type.unit, "UTC")).as_py()
        except (ValueError, OverflowError):
            return scalar.value
    return scalar.value
