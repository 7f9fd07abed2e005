"""Journal of a consumer, row by row in a file: memory does not grow with the load."""

import struct
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

_ROW = struct.Struct("<iqiiqq")
ROW = np.dtype(
    [
        ("partition", "<i4"),
        ("offset", "<i8"),
        ("producer", "<i4"),
        ("key", "<i4"),
        ("sequence", "<i8"),
        ("took_ns", "<i8"),
    ]
)
"""A row; ``took_ns`` is the time from when the record was due to its consumption."""
assert ROW.itemsize == _ROW.size
Rows = npt.NDArray[Any]


class JournalWriter:
    """Appends rows; they are in the file after ``flush``."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb", buffering=256 * 1024)
        self.flush = self._file.flush

    def add(self, partition: int, offset: int, producer: int, key: int, sequence: int, took_ns: int) -> None:
        """Append one record, in the order of delivery."""
        self._file.write(_ROW.pack(partition, offset, producer, key, sequence, took_ns))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_journal(path: Path) -> Rows:
    """Return all whole rows that are in the file now, not copied."""
    rows = path.stat().st_size // ROW.itemsize
    return np.memmap(path, ROW, "r", shape=(rows,)) if rows else np.empty(0, ROW)


def rows_of(*rows: tuple[int, int, int, int, int]) -> Rows:
    """Return rows of (partition, offset, producer, key, sequence)."""
    return np.array([(*row, 0) for row in rows], ROW)
