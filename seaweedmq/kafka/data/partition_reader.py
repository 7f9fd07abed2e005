"""Reader of one partition for a Fetch reply, which returns the batches as sent, from memory or from files."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from seaweedmq.broker.local import LocalPartition, TailState
from seaweedmq.codec.frame import ENCODING_KAFKA, Frame, decode_header, split_frames
from seaweedmq.codec.kafka.header import patched_head, read_header, stored_bytes
from seaweedmq.core.kafka.fetch_budget import FetchBudget
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import Corrupt, DataLoss
from seaweedmq.kafka.admin.cursors import Cursor, CursorKey, Cursors
from seaweedmq.kafka.data.fetch_memory import ReplyMemory
from seaweedmq.kafka.data.reencode import Reencoder
from seaweedmq.model.messages.frames import Frames


@dataclass(slots=True)
class Batches:
    """The batches read from a partition, in buffers that are sent one after another without a copy."""

    next_offset: int
    """Offset after the last record."""
    buffers: list[bytes | memoryview] = field(default_factory=list)
    size: int = 0
    """Bytes of all buffers."""


class PartitionReader:
    """A reader of partitions that this broker leads."""

    def __init__(self, cursors: Cursors, reencoder: Reencoder) -> None:
        self._cursors = cursors
        self._reencoder = reencoder

    async def read(
        self, partition: LocalPartition, offset: int, bytes_max: int, share: FetchBudget, memory: ReplyMemory
    ) -> Batches:
        """Read committed batches from the one that contains ``offset``.

        Args:
            partition: Partition to read.
            offset: Offset of the first record.
            bytes_max: Maximum bytes of this partition; the first batch of a reply may be larger.
            share: Bytes that are left for the whole reply.
            memory: Memory of the reply, for which a large first batch waits.

        Raises:
            OutOfRange: If the record at ``offset`` was deleted.
            StaleMetadata: If this broker no longer leads the partition.
            NotFound: If the partition was deleted.
            DataLoss: If the first record is lost; the records before a later loss are returned.
            Corrupt: If the first record is unreadable; the records before a later one are returned.
            StorageFailed: If the storage fails.
        """
        found = _Filling(offset, share, share.of(bytes_max), memory)
        while not found.is_full and found.batches.next_offset < partition.high_watermark:
            position = found.batches.next_offset
            entries = partition.in_memory(position, found.left)
            if entries is None:
                try:
                    await self._from_files(partition, found)
                except (Corrupt, DataLoss):
                    if not found.batches.size:
                        raise
                    break  # the consumer gets the records before, and its next fetch the error
                continue
            if entries and found.has_to_wait(size := entries[0].size_bytes):
                del entries  # the log may drop the entries during the wait: hold no reference
                await found.may_begin(size)
                continue
            for entry in entries:
                if entry.encoding == ENCODING_KAFKA:
                    found.add_stored(entry.payload, entry.base_offset, entry.end_offset, partition.segment.id)
                else:
                    await self._add_native(partition, entry, found)
            if found.batches.next_offset == position:
                break
        return found.batches

    async def _from_files(self, partition: LocalPartition, found: "_Filling") -> None:
        """Read until the reply is full, or the next records are in memory or in another segment."""
        cursor = self._cursor(partition, found.batches.next_offset)
        try:
            await self._read_on(partition, cursor, found)
        except BaseException:
            await cursor.tail.close()
            raise
        cursor.next_offset = found.batches.next_offset
        self._cursors.put(cursor)

    async def _read_on(self, partition: LocalPartition, cursor: Cursor, found: "_Filling") -> None:
        tail = cursor.tail
        while True:
            while cursor.rest and not found.is_full:
                await self._add(partition, tail.found.segment.id, cursor.rest[0], found)
                if found.batches.next_offset >= cursor.rest[0].header.end_offset:
                    cursor.rest.popleft()
            if found.is_full or await tail.look() is not TailState.READABLE:
                return
            if not await tail.ready():
                continue
            if not tail.reads_files:
                return
            if not found.share.taken:
                tail.offer()  # a wait for memory must not keep the tail's from others
                await found.may_begin(tail.next_bytes(max(1, found.left)))
                tail.keep()
            taken = tail.take(max(1, found.left))
            for part in () if taken is None else taken.parts:
                cursor.rest.extend(split_frames(part, verify=False))  # the tail has verified them

    def _cursor(self, partition: LocalPartition, offset: int) -> Cursor:
        tail = partition.tail(offset)
        key = CursorKey(partition.topic.uid, tail.found.segment.id, offset)
        return self._cursors.take(key) or Cursor(tail)

    async def _add(self, partition: LocalPartition, segment: int, frame: Frame, found: "_Filling") -> None:
        header = frame.header
        if header.encoding == ENCODING_KAFKA:
            await found.may_begin(stored_bytes(frame.payload))
            found.add_stored(frame.payload, header.base_offset, header.end_offset, segment)
            return
        await found.may_begin(header.frame_bytes)
        found.add_made(await self._reencoder.batches(partition.topic.uid, segment, frame))

    async def _add_native(self, partition: LocalPartition, entry: LogEntry, found: "_Filling") -> None:
        uid, segment = partition.topic.uid, partition.segment.id
        await found.may_begin(entry.size_bytes)
        made = self._reencoder.cached(uid, segment, entry.base_offset, entry.end_offset)
        if made is None:
            frame = Frame(decode_header(entry.header), entry.header, entry.payload)
            made = await self._reencoder.batches(uid, segment, frame)
        found.add_made(made)


class _Filling:
    """The batches read so far, and the bytes that still fit."""

    def __init__(self, offset: int, share: FetchBudget, left: int, memory: ReplyMemory) -> None:
        self._memory = memory
        self.batches = Batches(offset)
        self.share = share
        self.left = left
        self.is_full = left <= 0 and share.taken > 0

    def has_to_wait(self, frame_bytes: int) -> bool:
        """Whether a frame is the first of the reply and must wait for memory."""
        return not self.share.taken and self._memory.waits_for(frame_bytes)

    async def may_begin(self, frame_bytes: int) -> None:
        """Wait for memory for a frame if it is the first of the reply and large."""
        if not self.share.taken:
            await self._memory.first_batch(frame_bytes)

    def takes(self, size: int) -> bool:
        """Whether a batch still fits; after one that does not, no other does."""
        self.is_full = self.is_full or not self.share.fits(size, self.left)
        return not self.is_full

    def add_stored(self, payload: Frames, base_offset: int, end_offset: int, segment: int) -> None:
        """Add the batch in the payload of a frame, without a copy, if it still fits."""
        size = stored_bytes(payload)
        if self.takes(size):
            head = patched_head(payload, base_offset, segment)
            self._add((head, memoryview(payload)[len(head) : size]), size, end_offset)

    def add_made(self, batches: Iterable[bytes]) -> None:
        """Add those of the batches made from a frame that have wanted records and still fit."""
        for batch in batches:
            end = read_header(batch).end_offset
            if end > self.batches.next_offset and self.takes(len(batch)):
                self._add((batch,), len(batch), end)

    def _add(self, buffers: tuple[Frames, ...], size: int, end_offset: int) -> None:
        self.batches.buffers += buffers
        self.batches.size += size
        self.batches.next_offset = end_offset
        self.share.took(size)
        self.left -= size
        self.is_full = self.left <= 0
