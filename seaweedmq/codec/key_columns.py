"""Access to columns of keys for hashing whole columns: in blocks, with the position of every key in the bytes."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seaweedmq.errors import InvalidArgument

Longs: TypeAlias = npt.NDArray[np.int64]

BLOCK_KEYS: Final = 8_192
"""Keys per block: temporaries of 64 KiB stay in the cache. They also stay below the 128 KiB from which malloc maps
fresh pages each time; twice that block is two to three times slower."""


class KeyBytes(NamedTuple):
    """The keys of a binary column: all bytes, and the start and length of each key."""

    starts: Longs
    lengths: Longs
    data: pa.Buffer | None
    """Bytes of all keys; None if there are none."""

    def words(self, word: str) -> npt.NDArray[Any]:
        """Return a view of the little-endian words, such as ``<u4``, that begin at every byte."""
        kind = np.dtype(word)
        size = 0 if self.data is None else self.data.size
        return np.ndarray((max(size - kind.itemsize + 1, 0),), kind, self.data, strides=(1,))


def column_of_keys(keys: pa.Array) -> pa.Array:
    """Return keys as a binary column, or raise InvalidArgument if they are neither binary nor text."""
    if pa.types.is_string(keys.type):
        keys = keys.cast(pa.binary())
    if not pa.types.is_binary(keys.type):
        raise InvalidArgument(f"keys of type {keys.type}: a key is binary, cast the column")
    return keys


def blocks_of(keys: pa.Array) -> Iterator[tuple[slice, pa.Array]]:
    """Yield binary columns of up to ``BLOCK_KEYS`` with their positions; raises like ``column_of_keys``."""
    keys = column_of_keys(keys)
    for first in range(0, len(keys), BLOCK_KEYS):
        block = keys.slice(first, BLOCK_KEYS)
        yield slice(first, first + len(block)), block


def bytes_of(keys: pa.Array) -> KeyBytes:
    """Return the keys of a binary column, without copying."""
    _, offsets_buffer, data = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    return KeyBytes(offsets[:-1], np.diff(offsets), data)
