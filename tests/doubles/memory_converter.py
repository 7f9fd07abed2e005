"""``ports.TableConverter`` of a store in memory, for tests and the simulation."""

import io
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import IO

from seaweedmq.codec.paths import table_path
from seaweedmq.core.files.compaction import TableMerge
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.storage.tables.compact import write_merge
from seaweedmq.storage.tables.convert import Job, convert_logs
from tests.doubles.memory_store import MemorySegmentStore


class MemoryTableConverter:
    """A converter within a ``MemorySegmentStore``, in this process."""

    def __init__(self, store: MemorySegmentStore, *, row_group_bytes: int) -> None:
        self._store = store
        self._row_group_bytes = row_group_bytes

    async def convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> list[SegmentFile]:
        if not logs:
            return []
        beside = logs[0].path, self._store.files.get(logs[0].path)
        contents: dict[str, bytes] = {}
        for log in logs:
            reader = await self._store.open(log)
            contents[log.path] = await reader.read(0, sys.maxsize)
            await reader.close()
        job = Job(
            topic=topic,
            logs=logs,
            listed=await self._store.list_files(logs[0].topic, logs[0].segment),
            end_offset=end_offset,
            row_group_bytes=self._row_group_bytes,
        )
        target = _MemoryTarget(logs[0])
        tables = convert_logs(job, lambda file, at, length: contents[file.path][at : at + length], target)
        for path, content in target.written.items():
            await self._store.put_file(path, content, beside=beside)
        listed = {f.path: f for f in await self._store.list_files(logs[0].topic, logs[0].segment)}
        return [listed[t.path] for t in tables if t.path in listed]

    async def reconcile(self, topic: Topic) -> bool:
        """Do nothing: a store in memory has no Delta log."""
        return True

    async def compact(
        self, topic: Topic, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        merge = TableMerge(tables=tuple(tables), low_watermark=low_watermark)
        contents = {table.path: await self._store.open_input(table) for table in tables}
        sink = io.BytesIO()
        write_merge(sink, topic, merge, lambda table: contents[table.path], self._row_group_bytes)
        path = table_path(tables[0].topic, tables[0].segment, merge.base_offset, merge.end_offset)
        await self._store.put_file(path, sink.getvalue(), replaced=tables)
        self._store.files[path].modified_us = merge.modified_us
        await self._store.delete(tables)
        return [f for f in await self._store.list_files(tables[0].topic, tables[0].segment) if f.path == path]

    async def close(self) -> None:
        """Do nothing: there is no child process."""


class _MemoryTarget:
    """A ``TableTarget`` that holds finished tables until they are put into the store."""

    def __init__(self, of: SegmentFile) -> None:
        self._of = of
        self.written: dict[str, bytes] = {}

    def create(self) -> IO[bytes]:
        return io.BytesIO()

    def publish(self, sink: IO[bytes], base: int, end: int) -> SegmentFile:
        sink.seek(0)
        content = sink.read()
        path = table_path(self._of.topic, self._of.segment, base, end)
        self.written[path] = content
        table = replace(self._of, kind=FileKind.TABLE, base_offset=base, end_offset=end, writer="", path=path)
        return replace(table, size_bytes=len(content), modified_us=0)

    def discard(self, sink: IO[bytes]) -> None:
        sink.close()
