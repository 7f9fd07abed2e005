"""Folders of topics, on a mounted directory: documents, sweeps and deletion."""

import contextlib
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from seaweedmq.codec.paths import DELETED_PREFIX, TOPIC_DOCUMENT, TOPICS, deleted_prefix, document_path, topic_dir
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store import claims, file_io
from seaweedmq.storage.store.directory import holds_something, scan_names, scan_topics, sweep_pruned
from seaweedmq.storage.store.faults import NO_SPACE
from seaweedmq.storage.store.guarded_calls import GuardedCalls, missing_document
from seaweedmq.storage.store.removed import sweep_removed
from seaweedmq.storage.store.retained_tables import sweep_retained


class TopicFolders(GuardedCalls):
    """The folders of topics.

    Methods raise StorageFailed if the storage fails or lacks the marker of its cluster.
    """

    async def put_documents(self, topic: TopicName, documents: Mapping[str, bytes], *, is_durable: bool = True) -> None:
        """Replace documents of a topic, each atomically, and durably if ``is_durable``."""

        def put() -> None:
            directory = self._make_directories(topic_dir(topic))
            with contextlib.ExitStack() as aside:
                renames = []
                for name, content in documents.items():
                    temporary = aside.enter_context(file_io.temporary_file(directory))
                    temporary.write_bytes(content)
                    renames.append((temporary, directory / name))
                if is_durable:
                    file_io.publish(self.root, *renames)
                else:
                    for temporary, final in renames:
                        temporary.replace(final)

        await self._run(self._documents, "write the documents of", self.root / topic_dir(topic), put)

    async def list_topics(self) -> list[TopicName]:
        """List the topics that have a non-empty folder, ordered by name."""
        return await self._run(self._documents, "list the topics of", self.root, lambda: scan_topics(self.root))

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics that have a non-empty folder."""

        def found() -> frozenset[TopicName]:
            return frozenset(topic for topic in topics if holds_something(self.root / topic_dir(topic)))

        return await self._run(self._documents, "list topics in", self.root, found)

    async def list_documents(self, topic: TopicName) -> list[str]:
        """List the names of a topic's documents."""
        folder = self.root / topic_dir(topic)
        return await self._run(self._documents, "list", folder, lambda: scan_names(folder, ".json"))

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Read a document of a topic.

        Raises:
            NotFound: If there is no such document.
            StorageFailed: If the storage fails.
        """
        return await self._read_whole(document_path(topic, name))

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of the segments that left any file in the topic's folder."""
        folder = self.root / topic_dir(topic)
        return await self._run(self._documents, "list", folder, lambda: claims.used_segments(self.root, topic))

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of recently deleted topics."""
        return await self._run(self._documents, "list", self.root, lambda: claims.deleted_topics(self.root))

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete the files of pruned segments and expired retained links, unless the topic was recreated.

        Raises:
            StorageFailed: If the storage fails, or the topic's document is missing.
        """
        document = self.root / document_path(topic, TOPIC_DOCUMENT)

        def sweep() -> None:
            found = topic_from_document(document.read_bytes())
            if found.uid == uid:
                sweep_pruned(self.root, topic, found.pruned)
                sweep_removed(self.root, topic, found.pruned)
                sweep_retained(self.root, topic, kept_s, now_us)

        try:
            await self._run(self._syncs, "delete old files of", self.root / topic_dir(topic), sweep)
        except FileNotFoundError:
            raise missing_document(document) from None

    async def delete_topic(self, topic: TopicName, uid: int) -> None:
        """Record that a topic was deleted, and delete its folder unless it is of a recreated topic."""

        def delete() -> None:
            claims.record_deleted(self.root, uid)
            for folder in (self.root / topic_dir(topic), self.root / "blobs" / topic.namespace / topic.name):
                prefix = deleted_prefix(uid)
                if folder.is_dir() and self._belongs(folder, uid):
                    aside = next(p for n in range(10**6) if not (p := folder.parent / f"{prefix}{n}").exists())
                    _move_aside(folder, aside)
                # Also leftovers of interrupted deletions; earlier releases put the topic's name before the uid.
                for pattern in (f"{prefix}*", f"{DELETED_PREFIX}{topic.name}-{uid}-*"):
                    for leftover in folder.parent.glob(pattern):
                        shutil.rmtree(leftover, ignore_errors=False)

        await self._run(self._syncs, "delete topic folder", self.root / topic_dir(topic), delete)

    async def sweep_deleted(self) -> None:
        """Delete the leftovers of interrupted deletions of topics."""

        def sweep() -> None:
            for parent in (self.root / TOPICS, self.root / "blobs"):
                for leftover in parent.glob(f"*/{DELETED_PREFIX}*"):
                    shutil.rmtree(leftover)

        await self._run(self._syncs, "delete the leftovers of deleted topics in", self.root / TOPICS, sweep)

    def _belongs(self, folder: Path, uid: int) -> bool:
        """Whether the folder is of the topic with this uid, not of a recreated one."""
        try:
            found = topic_from_document((folder / TOPIC_DOCUMENT).read_bytes()).uid
        except (FileNotFoundError, SeaweedMQError):
            return True
        return found == uid


def _move_aside(folder: Path, aside: Path) -> None:
    """Rename the folder of a deleted topic; on a full disk, delete its files first to make space for the new name."""
    try:
        folder.rename(aside)
    except OSError as e:
        if e.errno not in NO_SPACE:
            raise
        for path in folder.rglob("*"):
            if path.name != TOPIC_DOCUMENT and not path.is_dir():
                path.unlink(missing_ok=True)
        folder.rename(aside)
