"""Receipts of acknowledged records and tables."""

from typing import NamedTuple


class Receipt(NamedTuple):
    """The location of an acknowledged record."""

    segment: int
    """The id of the segment."""
    offset: int | None
    """The offset in the segment. None in one rare case: the record is committed, but the acknowledgement was lost with
    its broker, and no other broker could repeat it."""


class OffsetRange(NamedTuple):
    """The records ``[first_offset, end_offset)`` of a segment."""

    segment: int
    first_offset: int
    end_offset: int


class TableReceipt(NamedTuple):
    """The locations of the acknowledged rows of a table."""

    records: int
    """The number of rows."""
    ranges: tuple[OffsetRange, ...]
    """The offset ranges by segment and offset, with adjacent ones joined. Rows of other publishers may lie between
    ranges, never inside."""
