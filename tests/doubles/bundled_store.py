"""Segment store in memory whose records are bundles and log objects of a bucket in memory."""

import dataclasses

from seaweedmq.codec.object_keys import parse_log_object
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Objects
from tests.doubles.memory_objects import MemoryBucket
from tests.doubles.memory_store import MemoryFile, MemoryLogReader, MemorySegmentStore


class BundledStore:
    """Factory of the views that brokers have of one storage."""

    def __init__(self, store: MemorySegmentStore, bucket: MemoryBucket) -> None:
        self.store = store
        self.bucket = bucket

    def view(self, objects: Objects) -> "BundledView":
        """Return the storage of one broker, with its own client of the bucket."""
        view = BundledView(self.store.wall_us, self.store.fault)
        for each in dataclasses.fields(MemorySegmentStore):
            setattr(view, each.name, getattr(self.store, each.name))
        view.client = objects
        view.bucket = self.bucket
        return view


class BundledView(MemorySegmentStore):
    """A storage that shares its files with others."""

    client: Objects
    bucket: MemoryBucket

    @property
    def objects(self) -> Objects | None:
        return self.client

    async def list_files(
        self, topic: TopicName, segment: int, *, uid: int | None = None, covering: int | None = None
    ) -> list[SegmentFile]:
        found = [*await super().list_files(topic, segment), *self._log_objects(topic, segment)]
        return sorted(found, key=lambda f: (f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def list_topic_files(self, topic: TopicName, *, uid: int | None = None) -> list[SegmentFile]:
        return [*await super().list_topic_files(topic), *self._log_objects(topic, None)]

    async def open(self, file: SegmentFile) -> MemoryLogReader:
        stored = self.bucket.stored.get(file.path)
        if stored is None:
            return await super().open(file)
        content = MemoryFile(bytearray(stored.content), 0, file.writer, len(stored.content), named=True)
        return MemoryLogReader(self, file.path, content)

    def _log_objects(self, topic: TopicName, segment: int | None) -> list[SegmentFile]:
        found = []
        for key, stored in self.bucket.stored.items():
            name = parse_log_object(key)
            if name is not None and name.topic.topic == topic and segment in (None, name.segment):
                found.append(
                    SegmentFile(
                        topic=topic,
                        segment=name.segment,
                        kind=FileKind.LOG,
                        base_offset=name.base_offset,
                        end_offset=name.end_offset,
                        writer=name.writer,
                        size_bytes=stored.state.size_bytes,
                        path=key,
                        modified_us=stored.state.modified_us,
                    )
                )
        return found
