"""Key slots of whole columns: XXH3-64 >> 48, equal to ``model.ring.slot_of`` of each key.

Calling xxhash per key reaches 12 M keys/s. Keys of up to 16 bytes, which most are, take closed forms without loops, so
numpy computes them a column at a time: 30-95 M keys/s. The tests compare with xxhash itself. Names and constants follow
https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md#xxh3-algorithm-description (seed 0).
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.arrays import array_of
from seaweedmq.codec.key_columns import Longs, blocks_of, bytes_of
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.ring import HISTOGRAM_BUCKETS, KeyRange, slot_of

_Hashes: TypeAlias = npt.NDArray[np.uint64]

_u = np.uint64
_SLOT_SHIFT = _u(48)
_LOW_32 = _u(0xFFFFFFFF)
_PRIME64_2 = _u(0xC2B2AE3D27D4EB4F)
_PRIME64_3 = _u(0x165667B19E3779F9)
_PRIME_MX1 = _u(0x165667919E3779F9)
_PRIME_MX2 = _u(0x9FB21C651E98DF25)
# Words of the default secret, already combined as the algorithm uses them for each class of lengths.
_SECRET_1_3 = _u(0x87275A9B)
_SECRET_4_8 = _u(0xC73AB174C5ECD5A2)
_SECRET_9_16_LOW = _u(0x6782737BEA4239B9)
_SECRET_9_16_HIGH = _u(0xAF56BC3B0996523A)
_SLOT_OF_EMPTY = slot_of(b"")

_FEW_KEYS = 64
"""Number of keys up to which hashing one by one is faster than a whole column."""


def slots_of(keys: pa.Array) -> npt.NDArray[np.uint16]:
    """Return the slot, shape ``(len(keys),)``, of every key of a binary or string array, else InvalidArgument.

    A null counts as the empty key.
    """
    slots = np.empty(len(keys), np.uint16)
    for place, block in blocks_of(keys):
        slots[place] = _slots_of_block(block)
    return slots


def histogram_of(slots: npt.NDArray[np.uint16], key_range: KeyRange) -> tuple[int, ...]:
    """Return the number of slots in each sixteenth of the range: bucket ``(slot - lo) * 16 // width``.

    Raises InvalidArgument if a slot is outside the range.
    """
    if len(slots) and not key_range.covers(int(slots.min()), int(slots.max())):
        raise InvalidArgument(f"slots {slots.min()}..{slots.max()} are not in {key_range}: route the records again")
    buckets = (slots.astype(np.uint32) - key_range.lo) * HISTOGRAM_BUCKETS // key_range.width
    return tuple(np.bincount(buckets, minlength=HISTOGRAM_BUCKETS).tolist())


def _slots_of_block(keys: pa.Array) -> npt.NDArray[np.uint16]:
    if len(keys) <= _FEW_KEYS:
        return np.array([slot_of(key or b"") for key in keys.to_pylist()], np.uint16)
    all_bytes = bytes_of(keys)
    starts, lengths, _ = all_bytes
    slots = np.full(len(keys), _SLOT_OF_EMPTY, np.uint16)
    shortest, longest = int(lengths.min()), int(lengths.max())
    for low, high, words, hash_of in _CLASSES:
        if low <= shortest and longest <= high:
            slots[:] = hash_of(starts, lengths, all_bytes.words(words)) >> _SLOT_SHIFT
        elif shortest <= high and longest >= low:
            at = np.flatnonzero((lengths >= low) & (lengths <= high))
            slots[at] = hash_of(starts[at], lengths[at], all_bytes.words(words)) >> _SLOT_SHIFT
    if longest > 16:
        at = np.flatnonzero(lengths > 16)
        long_keys = keys.take(array_of(at, pa.int64())).to_pylist()
        slots[at] = np.fromiter(map(xxh3_64_intdigest, long_keys), np.uint64, len(at)) >> _SLOT_SHIFT
    return slots


def _hash_1_to_3(start: Longs, length: Longs, byte_at: npt.NDArray[Any]) -> _Hashes:
    first = byte_at[start].astype(_u)
    middle = byte_at[start + (length >> 1)].astype(_u)
    last = byte_at[start + length - 1].astype(_u)
    h: _Hashes = ((first << _u(16)) | (middle << _u(24)) | last | (length.astype(_u) << _u(8))) ^ _SECRET_1_3
    h ^= h >> _u(33)
    h *= _PRIME64_2
    h ^= h >> _u(29)
    h *= _PRIME64_3
    h ^= h >> _u(32)
    return h


def _hash_4_to_8(start: Longs, length: Longs, word_at: npt.NDArray[Any]) -> _Hashes:
    h: _Hashes = (word_at[start + length - 4].astype(_u) + (word_at[start].astype(_u) << _u(32))) ^ _SECRET_4_8
    h ^= ((h << _u(49)) | (h >> _u(15))) ^ ((h << _u(24)) | (h >> _u(40)))
    h *= _PRIME_MX2
    h ^= (h >> _u(35)) + length.astype(_u)
    h *= _PRIME_MX2
    h ^= h >> _u(28)
    return h


def _hash_9_to_16(start: Longs, length: Longs, word_at: npt.NDArray[Any]) -> _Hashes:
    low = word_at[start] ^ _SECRET_9_16_LOW
    high = word_at[start + length - 8] ^ _SECRET_9_16_HIGH
    # The product has 128 bits, of which both halves count: schoolbook multiplication of 32-bit digits.
    a0, a1, b0, b1 = low & _LOW_32, low >> _u(32), high & _LOW_32, high >> _u(32)
    crossed = a0 * b1
    middle = ((a0 * b0) >> _u(32)) + (crossed & _LOW_32) + a1 * b0
    product_high = (crossed >> _u(32)) + (middle >> _u(32)) + a1 * b1
    h: _Hashes = low.byteswap() + high + ((low * high) ^ product_high) + length.astype(_u)
    h ^= h >> _u(37)
    h *= _PRIME_MX1
    h ^= h >> _u(32)
    return h


_CLASSES: tuple[tuple[int, int, str, Callable[[Longs, Longs, npt.NDArray[Any]], _Hashes]], ...] = (
    (1, 3, "<u1", _hash_1_to_3),
    (4, 8, "<u4", _hash_4_to_8),
    (9, 16, "<u8", _hash_9_to_16),
)
"""Shortest and longest key, word that is read at its ends, and the closed form."""
