"""Columns of keys, as hashes of whole columns need them: in blocks, with the place of every key in the bytes."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seaweedmq.errors import InvalidArgument

Longs: TypeAlias = npt.NDArray[np.int64]

BLOCK_KEYS: Final = 8_192
"""Keys worked on at once: temporaries of 64 KiB stay in the cache, and below the 128 KiB from which malloc maps fresh
pages each time (measured: twice that block is two to three times slower)."""


class KeyBytes(NamedTuple):
    """The keys of a binary column: the bytes of all, and where each begins and how long it is."""

    starts: Longs
    lengths: Longs
    data: pa.Buffer | None
    """None: there are no bytes."""

    def words(self, word: str) -> npt.NDArray[Any]:
        """A view of the little-endian word, such as ``<u4``, that begins at every byte."""
        kind = np.dtype(word)
        size = 0 if self.data is None else self.data.size
        return np.ndarray((max(size - kind.itemsize + 1, 0),), kind, self.data, strides=(1,))


def column_of_keys(keys: pa.Array) -> pa.Array:
    """The same as a binary column.

    Raises:
        InvalidArgument: it is neither that nor text.
    """
    if pa.types.is_string(keys.type):
        keys = keys.cast(pa.binary())
    if not pa.types.is_binary(keys.type):
        raise InvalidArgument(f"keys of type {keys.type}: a key is binary, cast the column")
    return keys


def blocks_of(keys: pa.Array) -> Iterator[tuple[slice, pa.Array]]:
    """Binary columns of up to ``BLOCK_KEYS``, with their places in the whole. Raises as ``column_of_keys``."""
    keys = column_of_keys(keys)
    for first in range(0, len(keys), BLOCK_KEYS):
        block = keys.slice(first, BLOCK_KEYS)
        yield slice(first, first + len(block)), block


def bytes_of(keys: pa.Array) -> KeyBytes:
    """Of a binary column."""
    _, offsets_buffer, data = keys.buffers()
    offsets = np.frombuffer(offsets_buffer, np.int32, len(keys) + 1, keys.offset * 4).astype(np.int64)
    return KeyBytes(offsets[:-1], np.diff(offsets), data)
