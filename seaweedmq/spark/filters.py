"""Filters that Spark pushes to the data source, as bounds of a read window."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

from seaweedmq.codec.timestamps import us_of
from seaweedmq.model.ring import slot_of
from seaweedmq.storage.plan.window import ReadWindow


def narrowed(window: ReadWindow, filters: Iterable[Filter], names: Mapping[str, str]) -> ReadWindow:
    """Return the window, narrowed by comparisons of columns with constants; other filters change nothing.

    ``names`` maps a column's name in Spark to ``offset``, ``timestamp``, ``segment``, ``partition`` or ``key``.
    """
    for found in filters:
        attribute: tuple[str, ...] = getattr(found, "attribute", ())
        what = names.get(".".join(attribute))
        if what is None:
            continue
        if what == "key":
            slots = _slots(found)
            if slots is not None:
                window = replace(window, slots=slots if window.slots is None else window.slots & slots)
            continue
        bounds = _bounds(found)
        if bounds is None:
            continue
        name = f"{what}s"
        window = replace(window, **{name: getattr(window, name).narrow(*bounds)})
    return window


def _bounds(found: Filter) -> tuple[int | None, int | None] | None:
    """Return bounds that hold for every row that passes the filter; None if the filter is not understood."""
    if isinstance(found, In):
        values = [_number(v) for v in found.value]
        if not values or any(v is None for v in values):
            return None
        numbers = [v for v in values if v is not None]
        return min(numbers), max(numbers) + 1
    if not isinstance(found, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual):
        return None
    number = _number(found.value)
    if number is None:
        return None
    if isinstance(found, EqualTo | EqualNullSafe):
        return number, number + 1
    if isinstance(found, GreaterThan | GreaterThanOrEqual):
        return (number if isinstance(found, GreaterThanOrEqual) else number + 1), None
    return None, (number if isinstance(found, LessThan) else number + 1)


def _number(value: Any) -> int | None:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return us_of(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _slots(found: Filter) -> frozenset[int] | None:
    """Return the slots of the keys that pass; None if the filter does not name them."""
    if isinstance(found, EqualTo | EqualNullSafe):
        keys = (found.value,)
    elif isinstance(found, In):
        keys = found.value
    else:
        return None
    if not all(isinstance(key, bytes | bytearray) for key in keys):
        return None
    return frozenset(slot_of(bytes(key)) for key in keys)
