"""Topic and lineage documents in storage, and the files of deleted topics.

Readers without etcd need the documents; the leader keeps them current.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.documents import lineage_document, lineage_line, topic_document
from seaweedmq.errors import SeaweedMQError, StorageFailed
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Deletion, TopicName
from seaweedmq.ports import Delete, SegmentStore
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

GATHER_S = 0.1
"""Time to gather changes into one write. It also keeps documents behind more urgent writes."""
GATHER_S_MAX = 5.0
"""Longest time that further changes delay a write.

It equals the time to replace all segments of a lost broker, which must not wait for a disk that flushes documents.
"""
WRITING_SHARE_MAX, PAUSE_S_MAX = 0.1, 5.0
"""Largest share of time spent on writing, and longest pause: long or slow documents are written less often."""
WRITTEN_AT_ONCE = 8
"""Topics whose documents are written concurrently: the storage waits for its disk and merges concurrent requests."""
LINES_AT_ONCE = 200
"""Segments encoded before other tasks run."""
RETRY_S = 0.5


class Documents:
    """``topic.json`` and ``lineage.json`` of every topic, and the folders of deleted topics."""

    def __init__(
        self, metadata: Metadata, store: SegmentStore, *, wait_closed: Callable[[Deletion], Awaitable[None]]
    ) -> None:
        """Create the documents; ``wait_closed`` returns once no broker serves a deleted topic any longer."""
        self._metadata = metadata
        self._store = store
        self._wait_closed = wait_closed
        self._writing = asyncio.Lock()
        """Lock of documents and folders: an older document must not overtake a newer one."""
        self._due: set[TopicName] = set()
        """Topics whose documents may be outdated."""
        self._changed = asyncio.Event()
        self._deleted = asyncio.Event()
        self._lines: dict[TopicName, _Lines] = {}
        self._failures_log = OnceLogger(log)

    async def run(self) -> None:
        """Write and delete what is due, until cancelled."""
        try:
            async with asyncio.TaskGroup() as duties:
                duties.create_task(_repeat(self._changed, self.write_due), name="write documents")
                duties.create_task(_repeat(self._deleted, self.delete_due), name="delete files")
        finally:
            self._lines.clear()

    def expect(self, names: Iterable[TopicName]) -> None:
        """Schedule the documents, or the file deletion, of topics that changed or were deleted."""
        self._due.update(names)
        self._changed.set()
        self._deleted.set()

    async def introduce(self, names: Sequence[TopicName]) -> None:
        """Write the documents of new topics at once, and schedule their durable write.

        A disk flushes far fewer topics a second than the leader creates. A power loss ends the leader as well, or
        leaves the topics due.
        """
        await self._write_all(names, is_durable=False)
        self.expect(names)

    async def write(self, names: Sequence[TopicName]) -> None:
        """Write the documents of these topics now. A failed write is retried later."""
        self.expect(names)
        await self._write_all(names)

    async def write_topic(self, name: TopicName) -> None:
        """Write the topic's own document without its lineage. A write that the storage rejects is retried later."""
        self.expect([name])
        async with self._writing:
            topic = self._metadata.view.topics.get(name)
            if topic is None or not self._metadata.leading:
                return
            try:
                documents = {TOPIC_DOCUMENT: topic_document(topic)}
                revision = self._metadata.view.version
                await self._store.put_documents(name, documents, uid=topic.uid, revision=revision)
            except StorageFailed as error:
                self._failures_log.add(f"document write of {name}", error)

    async def write_due(self) -> bool:
        """Write the documents that are due; return whether all are. A failed one stays due and delays no other."""
        return await self._write_all(sorted(self._due))

    async def _write_all(self, names: Sequence[TopicName], *, is_durable: bool = True) -> bool:
        """Write a few documents at a time; callers with other topics get the lock in between."""
        written = True
        for at in range(0, len(names), WRITTEN_AT_ONCE):
            async with self._writing:
                some = names[at : at + WRITTEN_AT_ONCE]
                written &= all(await asyncio.gather(*(self._try_to_write(name, is_durable) for name in some)))
        return written

    async def _try_to_write(self, name: TopicName, is_durable: bool) -> bool:
        if not self._metadata.leading:
            return False
        self._due.discard(name)
        try:
            await self._write(name, is_durable)
        except SeaweedMQError as error:
            self._due.add(name)
            self._failures_log.add(f"document write of {name}", error)
            return False
        except BaseException:  # a cancelled caller leaves the write to ``run``
            self.expect([name])
            raise
        return True

    async def _write(self, name: TopicName, is_durable: bool) -> None:
        topic = self._metadata.view.topics.get(name)
        if topic is None:
            self._lines.pop(name, None)
            return
        segments, revision = tuple(self._metadata.view.segments_of(name).values()), self._metadata.view.version
        lines = self._lines.setdefault(name, _Lines())
        await lines.learn(segments)
        if len(segments) > LINES_AT_ONCE:
            lineage = await asyncio.to_thread(lineage_document, name, segments, lines.of)
        else:
            lineage = lineage_document(name, segments, lines.of)
        documents = {TOPIC_DOCUMENT: topic_document(topic), LINEAGE_DOCUMENT: lineage}
        await self._store.put_documents(name, documents, uid=topic.uid, revision=revision, is_durable=is_durable)

    async def delete(self, name: TopicName) -> None:
        """Delete the files of a deleted topic of this name, if any, once its primaries have dropped it.

        The creator of the next topic of the name waits for that as well. If storage or etcd fails, the deletion stays
        due.
        """
        deletions = self._metadata.view.deletions
        while (deletion := deletions.get(name)) is not None:
            await self._wait_closed(deletion)
            async with self._writing:
                if deletions.get(name) != deletion:
                    continue  # another task was faster, and another deletion may follow
                await self._store.delete_topic(name, deletion.uid, revision=self._metadata.view.version)
                revision = await self._metadata.transact([], [Delete(keys.deletion_key(name))])
                await self._metadata.view.wait_revision(revision or 0)

    async def delete_due(self) -> bool:
        """Delete the files of deleted topics; return whether none are left. A failed deletion stays due."""
        return all(await asyncio.gather(*map(self._try_to_delete, sorted(self._metadata.view.deletions))))

    async def _try_to_delete(self, name: TopicName) -> bool:
        if not self._metadata.leading:
            return False
        try:
            await self.delete(name)
        except SeaweedMQError as error:
            self._failures_log.add(f"file deletion of {name}", error)
            return False
        return True


async def _repeat(expected: asyncio.Event, work: Callable[[], Awaitable[bool]]) -> None:
    """Do the work after each event, and again after a pause while some is left."""
    loop = asyncio.get_running_loop()
    pause_s = GATHER_S
    while True:
        await expected.wait()
        event_s = loop.time()
        while expected.is_set() and loop.time() - event_s < GATHER_S_MAX:
            expected.clear()
            await asyncio.sleep(pause_s)
        expected.clear()
        began = loop.time()
        if not await work():
            expected.set()
            await asyncio.sleep(RETRY_S)
        pause_s = min(max(GATHER_S, (loop.time() - began) / WRITING_SHARE_MAX), PAUSE_S_MAX)


class _Lines:
    """Encoded lines of one ``lineage.json``, cached per unchanged segment: few change at a time."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Segment, bytes]] = {}

    async def learn(self, segments: Sequence[Segment]) -> None:
        """Encode new segments, yielding to other tasks, and drop removed ones."""
        lines: dict[int, tuple[Segment, bytes]] = {}
        encoded = 0
        for segment in segments:
            known = self._lines.get(segment.id)
            if known is None or known[0] is not segment:
                known = segment, lineage_line(segment)
                encoded += 1
                if encoded % LINES_AT_ONCE == 0:
                    await asyncio.sleep(0)
            lines[segment.id] = known
        self._lines = lines

    def of(self, segment: Segment) -> bytes:
        """Return the line of a learned segment."""
        return self._lines[segment.id][1]
