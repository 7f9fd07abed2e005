"""Partitions of keys as Kafka's Java client picks them: ``(murmur2(key) & 0x7fffffff) % partitions``.

So native and Kafka publishers agree on a key's partition. Whole columns are hashed at a time. The hash is Austin
Appleby's MurmurHash2 (32 bits), with the seed of ``org.apache.kafka.common.utils.Utils.murmur2``; the tests use the
test vectors of that method.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from seaweedmq.codec.key_columns import blocks_of, bytes_of

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
_POSITIVE = 0x7FFFFFFF

_FEW_KEYS = 32
"""Number of keys up to which hashing one by one is faster than a whole column."""


def murmur2(key: bytes) -> int:
    """Return the unsigned 32-bit hash of a key."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if length & 3:
        h = (h ^ int.from_bytes(key[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.uint16]:
    """Return the partition of each binary or string key, else InvalidArgument; a null is the empty key."""
    found = np.empty(len(keys), np.uint16)
    for place, block in blocks_of(keys):
        found[place] = (_hashes_of(block) & _POSITIVE) % partitions
    return found


def _hashes_of(keys: pa.Array) -> npt.NDArray[np.uint32]:
    if len(keys) <= _FEW_KEYS:
        return np.array([murmur2(key or b"") for key in keys.to_pylist()], np.uint32)
    all_bytes = bytes_of(keys)
    starts, lengths, data = all_bytes
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    word_at = all_bytes.words("<u4")
    for number in range(int(words.max(initial=0))):
        # while all keys reach so far, without picking out those that do
        some = slice(None) if number < words.min() else np.flatnonzero(words > number)
        k = word_at[starts[some] + 4 * number] * np.uint32(_M)
        k ^= k >> np.uint32(24)
        h[some] = (h[some] * np.uint32(_M)) ^ (k * np.uint32(_M))
    rest = lengths & 3
    byte_at = np.frombuffer(data, np.uint8) if data is not None and data.size else np.zeros(1, np.uint8)
    ends = starts + (words << 2)
    for position in (2, 1, 0):
        some = np.flatnonzero(rest > position)
        h[some] ^= byte_at[ends[some] + position].astype(np.uint32) << np.uint32(8 * position)
    h[rest > 0] *= np.uint32(_M)
    h ^= h >> np.uint32(13)
    h *= np.uint32(_M)
    h ^= h >> np.uint32(15)
    return h
