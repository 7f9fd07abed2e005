"""Topics on an object store: their documents, their names, and their deletion.

A deletion leaves two documents of some 60 bytes per name, which keep late ones out, and an empty object per uid.
Everything else lies below the uid and is deleted; what is written there late harms no later topic of the name.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable, Mapping

from seaweedmq.codec.object_keys import TopicKey
from seaweedmq.codec.paths import DELETED_TOPICS, TOPICS, deleted_topic_path
from seaweedmq.codec.state.document_versions import DocumentVersion
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.object_store.segment_objects import SegmentObjects
from seaweedmq.storage.place import report_foreign

DELETED_TOPICS_MAX = 1_000
"""Limit of the records of deleted topics."""
DELETED_TOPICS_SPARE = 100
"""Records beyond the limit before the oldest are deleted."""
TOPICS_AT_ONCE = 32
"""Topics whose documents are read concurrently."""


class TopicObjects(SegmentObjects):
    """The topics below a prefix. Methods raise StorageFailed, also without the marker of the cluster."""

    async def put_documents(
        self, topic: TopicName, documents: Mapping[str, bytes], *, uid: int, revision: int, is_durable: bool = True
    ) -> None:
        """Replace documents of a topic, each atomically, by those of a higher revision; all are durable."""
        del is_durable
        await self.root.verify_often()
        await self.documents.put(topic, documents, DocumentVersion(uid, revision))

    async def list_documents(self, topic: TopicName) -> list[str]:
        """List the names of a topic's documents."""
        await self.root.verify_often()
        return await self.documents.names(topic)

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Read a document of a topic."""
        await self.root.verify_often()
        return await self.documents.read(topic, name)

    async def list_topics(self) -> list[TopicName]:
        """List the topics that have a document or objects, and are not deleted, ordered by name."""
        await self.root.verify_often()
        return sorted(await self.with_folder([name async for name in self._names()]))

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics that have a document or objects, and are not deleted."""
        await self.root.verify_often()
        return frozenset([name async for name in self._present(topics)])

    async def has_topics(self) -> bool:
        """Whether there is any topic that is not deleted."""
        names = [name async for name in self._names()]
        async for _ in self._present(names):
            return True
        return False

    async def _present(self, topics: Iterable[TopicName]) -> AsyncIterator[TopicName]:
        names = list(topics)
        for start in range(0, len(names), TOPICS_AT_ONCE):
            some = names[start : start + TOPICS_AT_ONCE]
            found = await asyncio.gather(*(self.is_present(name) for name in some))
            for name, is_present in zip(some, found, strict=True):
                if is_present:
                    yield name

    async def is_present(self, topic: TopicName) -> bool:
        """Whether a name has a document, a damaged one included, or objects of a topic that is not deleted."""
        stored = await self.documents.stored_topic(topic)
        if stored is not None and not stored.is_deleted:
            return True
        return bool(await self.keys_of(topic, None))

    async def _names(self) -> AsyncIterator[TopicName]:
        """Yield the names that have any object, deleted topics included."""
        for space in (await self.objects.list_folder(TOPICS)).folders:
            if space.rpartition("/")[2].startswith("."):
                continue
            for folder in (await self.objects.list_folder(space)).folders:
                _, namespace, name = folder.split("/")
                if name.startswith("."):
                    continue
                try:
                    yield TopicName(namespace, name)
                except InvalidArgument:
                    report_foreign(f"{self.uri}/{folder}")

    async def delete_topic(self, topic: TopicName, uid: int, *, revision: int) -> None:
        """Free the name of a topic, then delete its objects; those of a recreated topic stay."""
        await self.root.verify_often()
        await self._record_deleted(uid)
        await self.documents.bury(topic, DocumentVersion(uid, revision, is_deleted=True))
        await self.delete_objects_of(TopicKey(topic, uid))

    async def _record_deleted(self, uid: int) -> None:
        await self.objects.put(deleted_topic_path(uid), [])
        records = (await self.objects.list_folder(DELETED_TOPICS)).objects
        if len(records) > DELETED_TOPICS_MAX + DELETED_TOPICS_SPARE:
            oldest = sorted(records, key=lambda state: (state.modified_us, state.key))
            await self.objects.delete([state.key for state in oldest[:-DELETED_TOPICS_MAX]])

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of recently deleted topics."""
        await self.root.verify_often()
        return await self.deleted_uids()

    async def sweep_deleted(self) -> None:
        """Delete what interrupted deletions of topics, and late writes, left below the uids of deleted topics."""
        await self.root.verify_often()
        async for name in self._names():
            stored = await self.documents.stored_topic(name)
            if stored is not None and stored.version is not None and stored.is_deleted:
                await self.delete_objects_of(TopicKey(name, stored.version.uid))
