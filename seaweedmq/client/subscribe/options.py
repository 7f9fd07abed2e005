"""The checked options of a subscriber."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from seaweedmq.client.start import StartAt
from seaweedmq.errors import InvalidArgument

OnMissing: TypeAlias = Literal["fail", "skip"]
"""Behavior of a reader where records are lost: raise ``DataLoss``, or continue after them with a warning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """The start, the end and the columns of a subscriber: see ``Client.subscriber``."""

    start: StartAt = "latest"
    limit: int | None = None
    stop_at: Literal["latest"] | None = None
    timeout: float | None = None
    columns: Sequence[str] | None = None
    on_missing: OnMissing = "fail"

    def __post_init__(self) -> None:
        if self.stop_at not in (None, "latest"):
            raise InvalidArgument(f'stop_at={self.stop_at!r} is unknown: use "latest" or omit it')
        if self.on_missing not in ("fail", "skip"):
            raise InvalidArgument(f'on_missing={self.on_missing!r} is unknown: use "fail" or "skip"')
        if self.limit is not None and self.limit < 0:
            raise InvalidArgument(f"limit={self.limit} is negative: set the number of records to read")
