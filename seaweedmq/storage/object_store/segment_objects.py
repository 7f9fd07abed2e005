"""Log objects and tables of segments on an object store, and the marks of what retention removed.

A table that retention removes stays for readers that know it: a mark hides it from listings, and its age is that of the
mark. A sweep deletes it later. So names never change, and no copy is made.
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from seaweedmq.codec import paths
from seaweedmq.codec.object_keys import (
    LogObject,
    TopicKey,
    blobs_folder,
    parse_log_object,
    parse_table_object,
    table_folder,
)
from seaweedmq.errors import AlreadyExists, Corrupt, NotFound, StorageFailed
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlockingInput, Buffers
from seaweedmq.storage.object_store.base import ObjectStoreBase
from seaweedmq.storage.object_store.log_reader import ObjectLogReader
from seaweedmq.storage.place import report_foreign


class _Mark(NamedTuple):
    """A mark of removed records."""

    name: paths.RemovedMark
    key: str
    modified_us: int


class _Listed(NamedTuple):
    """The objects of a topic's segments."""

    files: Sequence[SegmentFile]
    marks: Sequence[_Mark]

    @property
    def visible(self) -> list[SegmentFile]:
        """The files without the tables that retention removed."""
        removed = _removed(self.marks)
        return [file for file in self.files if not _is_hidden(file, removed)]

    @property
    def hidden(self) -> list[SegmentFile]:
        """The tables that retention removed."""
        removed = _removed(self.marks)
        return [file for file in self.files if _is_hidden(file, removed)]


class SegmentObjects(ObjectStoreBase):
    """The objects of segments. Methods raise StorageFailed, also without the marker of the cluster."""

    async def create_log_object(
        self,
        topic: TopicName,
        uid: int,
        segment: int,
        *,
        base_offset: int,
        end_offset: int,
        writer: str,
        content: Buffers,
    ) -> SegmentFile:
        """Create a log object; one with equal content is its own, of an attempt whose answer was lost."""
        key = LogObject(TopicKey(topic, uid), segment, base_offset, end_offset, writer).key
        await self.root.verify_often()
        try:
            await self.objects.create(key, content)
        except AlreadyExists:
            await self._compare(key, content)
        file = SegmentFile(
            topic=topic,
            segment=segment,
            kind=FileKind.LOG,
            base_offset=base_offset,
            end_offset=end_offset,
            writer=writer,
            size_bytes=sum(memoryview(buffer).nbytes for buffer in content),
            path=key,
            modified_us=self.wall_us(),
        )
        self.catalogs.add(TopicKey(topic, uid), file)
        return file

    async def _compare(self, key: str, content: Buffers) -> None:
        try:
            found = (await self.objects.get(key)).content
        except NotFound:
            raise StorageFailed(f"{self.uri}/{key} existed and was deleted while it was compared: retry") from None
        if found != b"".join(content):
            raise Corrupt(
                f"{self.uri}/{key} exists with other content, though its name says that one broker wrote these offsets "
                "once: keep a copy of it, and report this"
            )

    async def list_files(
        self, topic: TopicName, segment: int, *, uid: int | None = None, covering: int | None = None
    ) -> list[SegmentFile]:
        """List the log objects and tables of a segment, ordered by base offset; all of its topic are listed."""
        await self.root.verify_often()
        found: list[SegmentFile] = []
        for key in await self.keys_of(topic, uid):
            catalog = self.catalogs.of(key)
            if covering is None or not catalog.covers(segment, covering):
                await self._renew(key)
            found += catalog.files(segment)
        return found

    async def list_topic_files(self, topic: TopicName, *, uid: int | None = None) -> list[SegmentFile]:
        """List the log objects and tables of a topic, ordered by segment, then base offset."""
        await self.root.verify_often()
        found: list[SegmentFile] = []
        for key in await self.keys_of(topic, uid):
            await self._renew(key)
            found += self.catalogs.of(key).files()
        return found

    async def _renew(self, topic: TopicKey) -> None:
        async def listed() -> Iterable[SegmentFile]:
            return (await self._listed(topic)).visible

        await self.catalogs.of(topic).renew(listed)
        self.catalogs.shrink()

    async def _listed(self, topic: TopicKey) -> _Listed:
        """List the objects of a topic; logs first, so that a log converted meanwhile appears as a table."""
        files: dict[str, SegmentFile] = {}
        async for page in self.objects.list(f"{topic.folder}/log"):
            for state in page:
                log = parse_log_object(state.key)
                if log is None:
                    report_foreign(f"{self.uri}/{state.key}")
                    continue
                files[state.key] = SegmentFile(
                    topic=topic.topic,
                    segment=log.segment,
                    kind=FileKind.LOG,
                    base_offset=log.base_offset,
                    end_offset=log.end_offset,
                    writer=log.writer,
                    size_bytes=state.size_bytes,
                    path=state.key,
                    modified_us=state.modified_us,
                )
        for state in (await self.objects.list_folder(table_folder(topic))).objects:
            table = parse_table_object(state.key)
            if table is None:
                report_foreign(f"{self.uri}/{state.key}")
                continue
            files[state.key] = SegmentFile(
                topic=topic.topic,
                segment=table.segment,
                kind=FileKind.TABLE,
                base_offset=table.base_offset,
                end_offset=table.end_offset,
                writer="",
                size_bytes=state.size_bytes,
                path=state.key,
                modified_us=table.dated_ms * 1_000,
            )
        return _Listed(list(files.values()), await self._marks(topic))

    async def open(self, file: SegmentFile) -> ObjectLogReader:
        """Open an object for reading, without a request."""
        await self.root.verify_often()
        return ObjectLogReader(self.objects, file.path, file.size_bytes)

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open an object for blocking reads, without a request."""
        await self.root.verify_often()
        return self.place.open_input(file)

    async def delete(self, files: Sequence[SegmentFile]) -> None:
        """Delete files; a table that a mark hides stays until :meth:`sweep`."""
        await self.root.verify_often()
        keys = {file.path: _topic_of(file) for file in files}
        with_tables = {keys[file.path] for file in files if file.kind is FileKind.TABLE}
        removed = {topic: _removed(await self._marks(topic)) for topic in sorted(with_tables)}
        await self.objects.delete(
            [file.path for file in files if not _is_hidden(file, removed.get(keys[file.path], {}))]
        )
        for file in files:
            self.catalogs.remove(keys[file.path], file)

    async def record_removed(self, topic: TopicName, uid: int, removed: Mapping[int, int]) -> None:
        """Put a mark for each segment whose offset rises."""
        await self.root.verify_often()
        key = TopicKey(topic, uid)
        known = _removed(await self._marks(key))
        rising = [s for s, offset in removed.items() if offset > known.get(s, 0)]
        names = [paths.RemovedMark(segment, removed[segment], uid).file_name for segment in rising]
        for name in names:
            with contextlib.suppress(AlreadyExists):  # by an attempt whose answer was lost, or another broker
                await self.objects.create(f"{paths.removed_dir(topic)}/{name}", [])

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return segment -> highest offset below which its records are removed."""
        await self.root.verify_often()
        return _removed(await self._marks(TopicKey(topic, uid)))

    async def _marks(self, topic: TopicKey) -> list[_Mark]:
        found = []
        for state in (await self.objects.list_folder(paths.removed_dir(topic.topic))).objects:
            name = paths.parse_removed_mark(state.key.rpartition("/")[2])
            if name is not None and name.uid == topic.uid:
                found.append(_Mark(name, state.key, state.modified_us))
        return found

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete the objects of pruned segments, and tables that were hidden ``kept_s`` ago."""
        await self.root.verify_often()
        found = await self.documents.topic(topic)
        if found is None:
            raise self.missing_document(topic)
        if found.uid != uid:
            return
        key = TopicKey(topic, uid)
        listed = await self._listed(key)
        old = [file for file in listed.visible if file.segment in found.pruned]
        due = await self._due(listed, int(kept_s * US_PER_S), now_us)
        needed = [file for file in listed.hidden if file.path not in due]
        await self.objects.delete(
            [
                *(file.path for file in old),
                *await self._pruned_documents(key, found.pruned),
                *due,
                *_needless(listed.marks, found.pruned, needed),
            ]
        )
        for file in old:
            self.catalogs.remove(key, file)

    async def _pruned_documents(self, topic: TopicKey, pruned: IdRanges) -> list[str]:
        if not pruned:
            return []
        keys = [state.key for state in (await self.objects.list_folder(topic.folder)).objects]
        numbers = {key: paths.parse_producers_document(key.rpartition("/")[2]) for key in keys}
        return [key for key, number in numbers.items() if number is not None and number in pruned]

    async def _due(self, listed: _Listed, kept_us: int, now_us: int | None) -> frozenset[str]:
        """Return the hidden tables that no reader needs any longer, by the clocks of the caller and of the store."""
        since = {file.path: _hidden_since_us(file, listed.marks) for file in listed.hidden}
        due = {path for path, us in since.items() if now_us is None or now_us - us >= kept_us}
        if due:  # the age of a mark is one of the store's clock, which costs requests
            stored_us = await self.root.now_us()
            due = {path for path in due if stored_us - since[path] >= kept_us}
        return frozenset(due)

    async def delete_objects_of(self, topic: TopicKey) -> None:
        """Delete everything of a topic but its documents."""
        for folder in (topic.folder, blobs_folder(topic)):
            async for page in self.objects.list(folder):
                await self.objects.delete([state.key for state in page])
        await self.objects.delete([mark.key for mark in await self._marks(topic)])
        self.catalogs.forget(topic)

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of the segments that left an object, of all topics of a name."""
        await self.root.verify_often()
        found: set[int | None] = set()
        async for page in self.objects.list(paths.topic_dir(topic)):
            found |= {_segment_of(topic, state.key) for state in page}
        return frozenset(number for number in found if number is not None)


def _removed(marks: Collection[_Mark]) -> dict[int, int]:
    removed: dict[int, int] = {}
    for mark in marks:
        removed[mark.name.segment] = max(mark.name.offset, removed.get(mark.name.segment, 0))
    return removed


def _is_hidden(file: SegmentFile, removed: Mapping[int, int]) -> bool:
    """Whether all records of a table are below the offset that retention recorded."""
    is_table = file.kind is FileKind.TABLE and file.end_offset is not None
    return is_table and (file.end_offset or 0) <= removed.get(file.segment, 0)


def _hidden_since_us(file: SegmentFile, marks: Sequence[_Mark]) -> int:
    """Return the age of the first mark that hides a hidden table."""
    return min(mark.modified_us for mark in marks if _is_hidden(file, {mark.name.segment: mark.name.offset}))


def _needless(marks: Sequence[_Mark], pruned: IdRanges, hidden: Sequence[SegmentFile]) -> list[str]:
    """Return the marks that hide no table that is left, except for the highest one of a segment that is not pruned."""
    highest = _removed(marks)
    return [
        key
        for name, key, _ in marks
        if (name.offset < highest[name.segment] or name.segment in pruned)
        and not any(_is_hidden(file, {name.segment: name.offset}) for file in hidden)
    ]


def _topic_of(file: SegmentFile) -> TopicKey:
    """Return topic and uid of a file that this store listed."""
    name = parse_log_object(file.path) or parse_table_object(file.path)
    if name is None:
        raise NotFound(f"{file.path} is not the key of a log object or table: list the segment's files again")
    return name.topic


def _segment_of(topic: TopicName, key: str) -> int | None:
    """Return the segment to which an object below a topic's name belongs; None for another object."""
    name = parse_log_object(key) or parse_table_object(key)
    if name is not None:
        return name.segment
    rest = key.removeprefix(f"{paths.topic_dir(topic)}/")
    match rest.split("/"):
        case [paths.REMOVED, mark_name]:
            mark = paths.parse_removed_mark(mark_name)
            return None if mark is None else mark.segment
        case [uid, document] if uid.isascii() and uid.isdecimal():
            return paths.parse_producers_document(document)
    return None
