"""Folders of topics, on a mounted directory: documents, sweeps and deletion."""

import contextlib
import os
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path

from seaweedmq.codec import paths
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.faults import NO_SPACE
from seaweedmq.storage.store import claims
from seaweedmq.storage.store.guarded_calls import GuardedCalls
from seaweedmq.storage.store.removed import sweep_removed
from seaweedmq.storage.store.retained_tables import sweep_retained


class TopicFolders(GuardedCalls):
    """The folders of topics. Methods raise StorageFailed if the storage fails or lacks the marker of its cluster."""

    async def put_documents(
        self, topic: TopicName, documents: Mapping[str, bytes], *, uid: int, revision: int, is_durable: bool = True
    ) -> None:
        """Replace documents of a topic, each atomically, and durably if ``is_durable``."""
        del uid, revision  # renames of one leader are in order

        def put() -> None:
            directory = self._make_folder(paths.topic_dir(topic))
            with contextlib.ExitStack() as aside:
                renames = []
                for name, content in documents.items():
                    temporary = aside.enter_context(file_io.temporary_file(directory))
                    temporary.write_bytes(content)
                    renames.append((temporary, directory / name))
                if is_durable:
                    self.place.publish(*renames)
                else:
                    for temporary, final in renames:
                        temporary.replace(final)

        await self._run(self._documents, "write the documents of", paths.topic_dir(topic), put)

    async def list_topics(self) -> list[TopicName]:
        """List the topics that have a non-empty folder, ordered by name."""
        return await self._run(self._documents, "list the topics of", "", self.place.topics)

    async def with_folder(self, topics: Collection[TopicName]) -> frozenset[TopicName]:
        """Return those of the topics that have a non-empty folder."""

        def found() -> frozenset[TopicName]:
            return frozenset(topic for topic in topics if self.place.holds_something(paths.topic_dir(topic)))

        return await self._run(self._documents, "list topics in", "", found)

    async def list_documents(self, topic: TopicName) -> list[str]:
        """List the names of a topic's documents."""
        folder = paths.topic_dir(topic)
        return await self._run(self._documents, "list", folder, lambda: self.place.names(folder, ".json"))

    async def read_document(self, topic: TopicName, name: str) -> bytes:
        """Read a document of a topic."""
        return await self._read_whole(paths.document_path(topic, name))

    async def used_segments(self, topic: TopicName) -> frozenset[int]:
        """Return the ids of the segments that left any file in the topic's folder."""
        folder = paths.topic_dir(topic)
        return await self._run(self._documents, "list", folder, lambda: claims.used_segments(self.place, topic))

    async def deleted_topics(self) -> frozenset[int]:
        """Return the uids of recently deleted topics."""
        return await self._run(self._documents, "list", "", lambda: claims.deleted_topics(self.place))

    async def sweep(self, topic: TopicName, uid: int, *, kept_s: float, now_us: int | None = None) -> None:
        """Delete the files of pruned segments and expired retained links, unless the topic was recreated."""

        def sweep() -> None:
            found = topic_from_document(self.place.read(paths.document_path(topic, paths.TOPIC_DOCUMENT)))
            if found.uid == uid:
                _sweep_pruned(self.place, topic, found.pruned)
                sweep_removed(self.place, topic, found.pruned)
                sweep_retained(self.place, topic, kept_s, now_us)

        try:
            await self._run(self._syncs, "delete old files of", paths.topic_dir(topic), sweep)
        except FileNotFoundError:
            raise self._missing_document(topic) from None

    async def delete_topic(self, topic: TopicName, uid: int, *, revision: int) -> None:
        """Record that a topic was deleted, and delete its folder unless it is of a recreated topic."""
        del revision  # renames of one leader are in order

        def delete() -> None:
            claims.record_deleted(self.place, uid)
            for folder in (
                self.place.path(paths.topic_dir(topic)),
                self.place.path(paths.blob_days(topic, uid)),
            ):
                prefix = paths.deleted_prefix(uid)
                if folder.is_dir() and self._belongs(folder, uid):
                    aside = next(p for n in range(10**6) if not (p := folder.parent / f"{prefix}{n}").exists())
                    _move_aside(folder, aside)
                # Also leftovers of interrupted deletions; earlier releases put the topic's name before the uid.
                for pattern in (f"{prefix}*", f"{paths.DELETED_PREFIX}{topic.name}-{uid}-*"):
                    for leftover in folder.parent.glob(pattern):
                        shutil.rmtree(leftover, ignore_errors=False)
            with contextlib.suppress(OSError):  # there are none, or a topic of this name has some
                self.place.path(paths.blob_days(topic, uid)).parent.rmdir()

        await self._run(self._syncs, "delete topic folder", paths.topic_dir(topic), delete)

    async def sweep_deleted(self) -> None:
        """Delete the leftovers of interrupted deletions of topics."""

        def sweep() -> None:
            payloads = self.place.path(paths.BLOBS)
            leftovers = [*self.place.path(paths.TOPICS).glob(f"*/{paths.DELETED_PREFIX}*")]
            leftovers += payloads.glob(f"*/*/{paths.DELETED_PREFIX}*")
            for uid in claims.deleted_topics(self.place):
                leftovers += payloads.glob(f"*/*/{uid}")  # Uploads may end after their topic was deleted.
            for leftover in leftovers:
                shutil.rmtree(leftover)

        await self._run(self._syncs, "delete the leftovers of deleted topics in", paths.TOPICS, sweep)

    def _belongs(self, folder: Path, uid: int) -> bool:
        """Whether the folder is of the topic with this uid, not of a recreated one."""
        try:
            found = topic_from_document((folder / paths.TOPIC_DOCUMENT).read_bytes()).uid
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
            if path.name != paths.TOPIC_DOCUMENT and not path.is_dir():
                path.unlink(missing_ok=True)
        folder.rename(aside)


def _sweep_pruned(place: DirectoryPlace, topic: TopicName, pruned: IdRanges) -> None:
    """Delete the log folders, the tables and the documents of pruned segments."""
    if not pruned:
        return
    with contextlib.suppress(FileNotFoundError), os.scandir(place.path(paths.logs_dir(topic))) as folders:
        for folder in folders:
            if folder.name.isdecimal() and int(folder.name) in pruned and folder.is_dir(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    shutil.rmtree(folder.path)
    for document in place.names(paths.topic_dir(topic), ".json"):
        segment = paths.parse_producers_document(document)
        if segment is not None and segment in pruned:
            place.delete(f"{paths.topic_dir(topic)}/{document}")
    for table in place.names(paths.table_dir(topic)):
        name = paths.parse_segment_file(f"{paths.table_dir(topic)}/{table}")
        if name is not None and name.segment in pruned:
            place.delete(f"{paths.table_dir(topic)}/{table}")
