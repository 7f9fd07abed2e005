"""NumPy arrays as Arrow columns, without pandas."""

import numpy as np
import pyarrow as pa


def array_of(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """The memory of a contiguous NumPy array as a column without nulls of a type of the same width.

    ``pa.array``, ``pa.scalar`` and whatever takes a Python value import pandas where it is installed: 35 MB and half a
    second, which neither a broker, nor its table worker, nor a subscriber has to spare.
    """
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
