"""Conversion of Python values and NumPy arrays to Arrow columns without pandas.

``pa.array``, ``pa.scalar`` and everything that takes a Python value import pandas where it is installed. That costs 35
MB and half a second, which exceeds the budget of a broker, its table worker, or a client's first record.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

OFFSET_MAX = 2**31 - 1
"""Maximum bytes of a binary column in one chunk."""


def array_of(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """Return a contiguous NumPy array as a column without nulls, of a type of the same width, without copying."""
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])


def binary_of(values: Sequence[bytes | None]) -> pa.Array:
    """Return a binary column of values, some 30 million per second; pa.ArrowCapacityError above ``OFFSET_MAX``."""
    count, null_bits = len(values), None
    try:
        data = b"".join(values)  # type: ignore[arg-type] # a None raises
    except TypeError:
        present = np.fromiter((value is not None for value in values), np.bool_, count)
        null_bits = pa.py_buffer(np.packbits(present, bitorder="little"))
        values = [value or b"" for value in values]
        data = b"".join(values)  # type: ignore[arg-type] # no None is left
    if len(data) > OFFSET_MAX:
        raise pa.ArrowCapacityError(f"{len(data)} bytes do not fit one column of at most {OFFSET_MAX}")
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int32, count), out=offsets[1:])  # type: ignore[arg-type]
    return pa.Array.from_buffers(pa.binary(), count, [null_bits, pa.py_buffer(offsets), pa.py_buffer(data)])
