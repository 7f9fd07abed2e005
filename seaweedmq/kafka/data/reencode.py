"""Conversion of frames of native publishers and tables to Kafka batches, shared by all readers."""

import asyncio
from collections import OrderedDict
from contextlib import nullcontext
from typing import NamedTuple
from weakref import WeakValueDictionary

from seaweedmq.codec.frame import FLAG_REFERENCE, Frame
from seaweedmq.codec.kafka.build import batches_of
from seaweedmq.codec.payload.batch import decode_frame, full_batch
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.kafka.codes import Code

BATCH_BYTES_MAX = 256 * 1024
LARGE_BYTES = 1024 * 1024
"""Size from which frames are encoded one after another: each needs several times its size during that."""


class _Key(NamedTuple):
    topic_uid: int
    segment: int
    base_offset: int
    end_offset: int


class Reencoder:
    """An encoder that caches its batches up to a limit; the last ones are cached regardless of it."""

    def __init__(self, kept_bytes_max: int) -> None:
        self._limit = kept_bytes_max
        self._kept: OrderedDict[_Key, tuple[bytes, ...]] = OrderedDict()
        """Cached batches, the least recently used first."""
        self._kept_bytes = 0
        self._locks: WeakValueDictionary[_Key, asyncio.Lock] = WeakValueDictionary()
        """Locks of uncached frames: one reader encodes, and if it is cancelled, the next one does."""
        self._large = asyncio.Lock()

    def cached(self, topic_uid: int, segment: int, base_offset: int, end_offset: int) -> tuple[bytes, ...] | None:
        """Return the result of :meth:`batches` for the frame with these offsets; None if it is not cached."""
        return self._found(_Key(topic_uid, segment, base_offset, end_offset))

    async def batches(self, topic_uid: int, segment: int, frame: Frame) -> tuple[bytes, ...]:
        """Return the records of a frame without columns as batches with the same offsets, the segment as leader epoch.

        For columns it raises a KafkaError after whose code consumers do not retry: that would be silent and without
        end. Raises Corrupt and Unsupported as ``decode_frame``.
        """
        header = frame.header
        if header.schema_version:
            raise KafkaError(
                Code.UNSUPPORTED_FOR_MESSAGE_FORMAT,
                "topic has columns, which Kafka records cannot hold: read it with SeaweedMQ's own client",
            )
        key = _Key(topic_uid, segment, header.base_offset, header.end_offset)
        found = self._found(key)
        if found is not None:
            return found
        async with self._locks.setdefault(key, asyncio.Lock()):
            found = self._found(key)
            if found is None:
                async with self._large if header.frame_bytes >= LARGE_BYTES else nullcontext():
                    found = await _in_thread(frame, segment)
                self._keep(key, found)
        return found

    def _found(self, key: _Key) -> tuple[bytes, ...] | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    def _keep(self, key: _Key, made: tuple[bytes, ...]) -> None:
        self._kept[key] = made
        self._kept_bytes += sum(map(len, made))
        while self._kept_bytes > self._limit and len(self._kept) > 1:
            self._kept_bytes -= sum(map(len, self._kept.popitem(last=False)[1]))


async def _in_thread(frame: Frame, segment: int) -> tuple[bytes, ...]:
    """Encode in a thread; wait for its end even if the caller is cancelled: the thread holds memory until then."""
    making = asyncio.ensure_future(asyncio.to_thread(encoded, frame, segment))
    try:
        return await asyncio.shield(making)
    except asyncio.CancelledError:
        await asyncio.wait({making})
        raise


def encoded(frame: Frame, segment: int) -> tuple[bytes, ...]:
    """Return the records of a frame without columns as batches with the same offsets."""
    header = frame.header
    rows = full_batch(decode_frame(frame, None), header, None, has_references=bool(header.flags & FLAG_REFERENCE))
    return tuple(batches_of(rows, header.base_offset, segment, BATCH_BYTES_MAX))
