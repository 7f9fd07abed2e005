"""Checks of column values that Arrow's own validation lacks, and that would fail in Parquet writers much later."""

from collections.abc import Callable
from typing import TypeAlias

import pyarrow as pa

from seaweedmq.errors import InvalidArgument

Check: TypeAlias = Callable[[pa.Array], None]
"""Check that raises InvalidArgument for an array with a forbidden value."""


def check_of(field: pa.Field, where: str) -> Check | None:
    """Return the check that a field's arrays need; None for most, so that they cost nothing.

    Two rules: a field declared non-nullable has no null (where its parent has a value), and timestamps in seconds fit
    the milliseconds that Parquet has instead.
    """
    inner = _check_of_type(field.type, where)
    if field.nullable:
        return inner

    def check(array: pa.Array) -> None:
        if array.null_count:
            raise InvalidArgument(
                f"has null in {where}, which the schema declares not null: fill it, or drop the record"
            )
        if inner is not None:
            inner(array)

    return check


def _check_of_type(kind: pa.DataType, where: str) -> Check | None:
    if pa.types.is_timestamp(kind) and kind.unit == "s":
        return lambda array: _check_seconds(array, where)
    if pa.types.is_struct(kind):
        return _check_of_struct(kind, where)
    if pa.types.is_map(kind):
        # Arrow rejects null keys; this checks the contents of keys and items. Arrow flattens lists but not maps, hence
        # the view.
        key, item = kind.key_field.with_nullable(True), kind.item_field
        inner = _check_of_type(pa.struct([key, item]), where)
        entries = pa.list_(pa.struct([key, item.with_nullable(True)]))
        return None if inner is None else lambda array: inner(array.view(entries).flatten())
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        of_items = check_of(kind.value_field, where)
        return None if of_items is None else lambda array: of_items(array.flatten())  # without values below null lists
    return None


def _check_of_struct(kind: pa.DataType, where: str) -> Check | None:
    fields = [kind.field(i) for i in range(kind.num_fields)]
    checks = [check_of(field, f"{where}, field {field.name!r}") for field in fields]
    if not any(checks):
        return None

    def check(array: pa.Array) -> None:
        valid = array.drop_null() if array.null_count else array
        for child, inner in zip(valid.flatten(), checks, strict=True):
            if inner is not None:
                inner(child)

    return check


def _check_seconds(array: pa.Array, where: str) -> None:
    try:
        array.cast(pa.timestamp("ms", tz=array.type.tz))
    except pa.ArrowInvalid as e:
        raise InvalidArgument(f"has a timestamp in {where} that milliseconds cannot hold ({e}): correct it") from e
