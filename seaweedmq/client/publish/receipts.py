"""What a publisher hands back."""

from typing import NamedTuple


class Receipt(NamedTuple):
    """Where a record is kept."""

    segment: int
    offset: int | None
    """None in one rare case: the record is kept, but the acknowledgement was lost with the broker that sent it and no
    other broker could repeat it."""


class OffsetRange(NamedTuple):
    """Records ``[first_offset, end_offset)`` of a segment."""

    segment: int
    first_offset: int
    end_offset: int


class TableReceipt(NamedTuple):
    """Where the rows of a table are kept."""

    records: int
    """Rows of the table."""
    ranges: tuple[OffsetRange, ...]
    """By segment and offset, adjoining ones joined. Rows of other publishers may lie between, never inside."""
