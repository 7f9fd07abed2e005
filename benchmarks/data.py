"""Records for measurements."""

import numpy as np
import pyarrow as pa

RECORD = b'{"order":"0000000000000000","customer":"000000000","item":"00000000","amount":"00000.00","n":"000"}.'
assert len(RECORD) == 100
ROWS_PER_CHUNK = 262_144


def random_table(total_bytes: int, record_bytes: int) -> pa.Table:
    """Return one column ``_value`` of random bytes, records of one size, in one chunk."""
    count = total_bytes // record_bytes
    values = np.random.default_rng(1).integers(0, 256, count * record_bytes, dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * record_bytes
    column = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values)])
    return pa.table({"_value": column})


def text_table(count: int, seed: int, record_bytes: int = len(RECORD)) -> pa.Table:
    """Return one column ``_value`` of JSON-like records, 43 of each 100 bytes random digits: they compress like text.

    Args:
        record_bytes: Size of a record: such texts joined, the last of them cut off.
    """
    rng = np.random.default_rng(seed)
    template = np.resize(np.frombuffer(RECORD, np.uint8), record_bytes)
    values = np.tile(template, (count, 1))
    digits = np.flatnonzero(template == ord("0"))
    values[:, digits] = rng.integers(ord("0"), ord("9") + 1, (count, len(digits)), dtype=np.uint8)
    offsets = np.arange(count + 1, dtype=np.int32) * record_bytes
    column = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(values.reshape(-1))])
    return pa.table({"_value": column})
