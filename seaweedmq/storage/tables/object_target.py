"""Tables of one segment on an object store, as conversions and merges write them. Blocking.

A table is created under its final name, which has its offsets and the date of its youngest source. So two processes
that do the same work write the same object, and need neither a lock nor a claim. Tables of two different merges of the
same records may overlap, which readers tolerate.
"""

import contextlib
import io
from collections.abc import Collection, Sequence
from typing import IO, cast

from seaweedmq.codec.object_keys import TableObject, TopicKey
from seaweedmq.core.files.compaction import TableMerge
from seaweedmq.core.files.cover import check_no_overlap
from seaweedmq.errors import NotFound
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.tables.part_sink import PartSink


class ObjectTarget:
    """A ``TableTarget`` and ``MergeTarget`` for one segment of a topic."""

    def __init__(self, place: ObjectPlace, topic: Topic, segment: int, logs: Sequence[SegmentFile] = ()) -> None:
        """Create a target; ``logs`` are the sources of a conversion."""
        self._place = place.of(topic)
        self._topic = topic
        self._segment = segment
        self._logs = logs

    def create(self) -> IO[bytes]:
        """Return a sink in memory, since the name follows from the records. ``TABLE_BYTES_MAX`` bounds it."""
        return io.BytesIO()

    def publish(self, sink: IO[bytes], base: int, end: int) -> SegmentFile:
        """Create the table of offsets ``[base, end)``, unless another process has created it."""
        assert isinstance(sink, io.BytesIO), "conversions write to memory"
        path = self._path(base, end, self._dated_ms(base, end))
        check_no_overlap(self._others(path), base, end)
        with contextlib.suppress(FileExistsError):  # the same records, encoded by another build
            self._place.create(path, sink.getbuffer())
        return self._made(path)

    def discard(self, sink: IO[bytes]) -> None:
        """Drop a sink; nothing of it is visible."""
        if isinstance(sink, PartSink):
            sink.abandon()

    def create_merged(self, merge: TableMerge) -> IO[bytes]:
        """Begin the table of a merge, which appears once it is finished; raises Unavailable if others hold its rows."""
        path = self._path(merge.base_offset, merge.end_offset, merge.modified_us // 1_000)
        check_no_overlap(self._others(path), merge.base_offset, merge.end_offset, merge.tables)
        return cast("IO[bytes]", PartSink(path, self._place.open_writer(path)))

    def finish(self, sink: IO[bytes]) -> str:
        """Complete the table and return its path."""
        assert isinstance(sink, PartSink), "merges write parts"
        sink.finish()
        return sink.path

    def check_free(self, rewrite: TableMerge) -> None:
        """Do nothing: a rewritten table has another date than a deleted one of its offsets."""

    def publish_merged(self, made: str, merge: TableMerge) -> SegmentFile:
        """Return the table, which is there since it was finished."""
        return self._made(made)

    def _others(self, path: str) -> Collection[SegmentFile]:
        return [table for table in self._place.tables(self._topic.name, [self._segment]) if table.path != path]

    def _path(self, base: int, end: int, dated_ms: int) -> str:
        return TableObject(TopicKey(self._topic.name, self._topic.uid), self._segment, base, end, dated_ms).key

    def _dated_ms(self, base: int, end: int) -> int:
        """Return the date of the youngest log that may hold some of the offsets: equal conversions have equal names."""
        sources = [
            log.modified_us
            for log in self._logs
            if log.base_offset < end and (log.end_offset is None or log.end_offset > base)
        ]
        return max(sources) // 1_000

    def _made(self, path: str) -> SegmentFile:
        try:
            made = self._place.file_at(path)
        except FileNotFoundError:
            raise NotFound(f"{path} is missing: the topic was deleted, or retention removed it") from None
        assert made is not None, f"{path} does not name a table"
        return made
