"""Documents of topics on an object store: ``topic.json`` and ``lineage.json``, and those of sealed segments' producers.

A write may be applied late, after its sender was deposed or its topic deleted. So a document is replaced by If-Match,
and only by one of a higher revision. Deletion replaces it as well: an absent one could be created late. The documents
of producers lie below the uid of their topic, where a late one harms no later topic of the name.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.codec.object_keys import TopicKey
from seaweedmq.codec.paths import (
    LINEAGE_DOCUMENT,
    TOPIC_DOCUMENT,
    document_path,
    parse_producers_document,
    topic_dir,
)
from seaweedmq.codec.state.document_versions import DocumentVersion, deletion_document, version_of, with_version
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import AlreadyExists, Conflict, NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Objects
from seaweedmq.runtime.retrying import after_attempts, backoff, retrying

WRITE_ATTEMPTS = 10
"""Attempts to write a document; each failed one means that another process wrote it."""
PAUSE_S_FIRST, PAUSE_S_MAX = 0.05, 1.0
SHARED = (TOPIC_DOCUMENT, LINEAGE_DOCUMENT)
"""Documents that lie beside the uids of the topics of one name."""


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is stored."""

    content: bytes
    e_tag: str
    version: DocumentVersion | None
    """Version; None for a document of other origin, or a damaged one."""

    @property
    def is_deleted(self) -> bool:
        """Whether it says that its topic was deleted."""
        return self.version is not None and self.version.is_deleted

    def topic(self) -> Topic:
        """Return the topic of ``topic.json``; raises Corrupt, Unsupported."""
        return topic_from_document(self.content)


Change: TypeAlias = Callable[[StoredDocument | None], bytes | None]
"""Function from a stored document, None without one, to its new content; None: leave it as it is."""


class TopicDocuments:
    """The documents of all topics below one prefix. Methods raise StorageFailed."""

    def __init__(self, objects: Objects, rng: random.Random) -> None:
        self._objects = objects
        self._pause_s = backoff(rng, PAUSE_S_FIRST, PAUSE_S_MAX)

    async def put(self, topic: TopicName, documents: Mapping[str, bytes], version: DocumentVersion) -> None:
        """Replace documents of a topic, each atomically, unless a later version of it is stored.

        Raises StorageFailed if the topic was deleted.
        """
        await _all(self._put(topic, name, content, version) for name, content in documents.items())

    async def _put(self, topic: TopicName, name: str, content: bytes, version: DocumentVersion) -> None:
        if name not in SHARED:
            await self._objects.put(_own_key(topic, version.uid, name), [content])
            return
        versioned = with_version(content, version)

        def change(found: StoredDocument | None) -> bytes | None:
            before = None if found is None else found.version
            if before is not None and before.is_deleted and before.uid == version.uid:
                raise StorageFailed(f"{document_path(topic, name)} is not written: the topic was deleted")
            return versioned if before is None or before.revision < version.revision else None

        await self._update(document_path(topic, name), change)

    async def bury(self, topic: TopicName, deletion: DocumentVersion) -> None:
        """Mark the documents of a topic as those of a deleted one, unless they are of another topic of the name."""
        await _all(self._bury(topic, name, deletion) for name in SHARED)

    async def _bury(self, topic: TopicName, name: str, deletion: DocumentVersion) -> None:
        def change(found: StoredDocument | None) -> bytes | None:
            before = None if found is None else found.version
            if found is not None and before is None and name == TOPIC_DOCUMENT:
                with contextlib.suppress(SeaweedMQError):  # a damaged document is that of the topic
                    before = DocumentVersion(found.topic().uid, 0)
            is_of_another = before is not None and not before.is_deleted and before.uid != deletion.uid
            is_later = before is not None and before.is_deleted and before.revision >= deletion.revision
            return None if is_of_another or is_later else deletion_document(deletion)

        await self._update(document_path(topic, name), change)

    async def _update(self, key: str, change: Change) -> None:
        """Replace a document by what ``change`` makes of it; None: leave it as it is."""

        async def attempt() -> None:
            found = await self._stored(key)
            content = change(found)
            if content is None:
                return
            if found is None:
                await self._objects.create(key, [content])
            else:
                await self._objects.replace(key, [content], e_tag=found.e_tag)

        changed = (AlreadyExists, Conflict, NotFound)
        try:
            await retrying(self._pause_s, on=changed, stop=after_attempts(WRITE_ATTEMPTS))(attempt)
        except changed as error:
            raise StorageFailed(
                f"{self._objects.uri}/{key} is not written: other processes wrote it {WRITE_ATTEMPTS} times meanwhile; "
                "retry"
            ) from error

    async def read(self, topic: TopicName, name: str) -> bytes:
        """Return a document, or raise NotFound if there is none, or its topic was deleted."""
        key = document_path(topic, name)
        if name not in SHARED:
            found = await self.topic(topic)
            if found is None:
                raise self._no_document(key)
            return bytes((await self._objects.get(_own_key(topic, found.uid, name))).content)
        stored = await self._stored(key)
        if stored is None or stored.is_deleted:
            raise self._no_document(key)
        return stored.content

    async def names(self, topic: TopicName) -> list[str]:
        """Return the names of a topic's documents, sorted."""
        found = await asyncio.gather(*(self._stored(document_path(topic, name)) for name in SHARED))
        names = [name for name, each in zip(SHARED, found, strict=True) if each is not None and not each.is_deleted]
        with contextlib.suppress(SeaweedMQError):  # without a readable topic its other documents are unknown
            described = await self.topic(topic)
            if described is not None:
                below = await self._objects.list_folder(TopicKey(topic, described.uid).folder)
                own = [each.key.rpartition("/")[2] for each in below.objects]
                names += [name for name in own if parse_producers_document(name) is not None]
        return sorted(names)

    async def topic(self, topic: TopicName) -> Topic | None:
        """Return the topic of ``topic.json``; None without one, or if the topic was deleted.

        Raises Corrupt, Unsupported.
        """
        found = await self.stored_topic(topic)
        return None if found is None or found.is_deleted else found.topic()

    async def stored_topic(self, topic: TopicName) -> StoredDocument | None:
        """Return ``topic.json``, also that of a deleted topic; None without one."""
        return await self._stored(document_path(topic, TOPIC_DOCUMENT))

    async def _stored(self, key: str) -> StoredDocument | None:
        try:
            found = await self._objects.get(key)
        except NotFound:
            return None
        content = bytes(found.content)
        return StoredDocument(content, found.state.e_tag, version_of(content))

    def _no_document(self, key: str) -> NotFound:
        return NotFound(f"{key} is missing in {self._objects.uri}")


async def _all(calls: Iterable[Awaitable[None]]) -> None:
    """Await all calls, then raise the first error: none of them continues after the return."""
    for error in await asyncio.gather(*calls, return_exceptions=True):
        if error is not None:
            raise error


def _own_key(topic: TopicName, uid: int, name: str) -> str:
    """Return the key of a document of producers."""
    return document_path(topic, name).replace(topic_dir(topic), TopicKey(topic, uid).folder, 1)
