"""What the leader keeps in the storage for readers without etcd, and the deletion of what deleted topics left there."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.codec import keys
from seaweedmq.codec.documents import lineage_document, lineage_line, topic_document
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT
from seaweedmq.errors import SeaweedMQError, StorageFailed
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Deletion, TopicName
from seaweedmq.ports import Delete, SegmentStore
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

GATHER_S = 0.1
"""Changes so close to each other are written once; nor do documents get in the way of what comes before them."""
GATHER_S_MAX = 5.0
"""So long changes may follow each other before the first is written: as long as it takes to replace all that a broker
had, which must not wait for a disk that syncs documents."""
WRITING_SHARE_MAX, PAUSE_S_MAX = 0.1, 5.0
"""Of the time that is spent on writing: documents that are long or take long are written less often."""
WRITTEN_AT_ONCE = 8
"""Topics whose documents are on their way to the storage: it waits for its disk, and merges what comes together."""
LINES_AT_ONCE = 200
"""Segments that are encoded before other tasks get a turn."""
RETRY_S = 0.5


class Documents:
    """``topic.json`` and ``lineage.json`` of every topic, and the folders of deleted ones."""

    def __init__(
        self, metadata: Metadata, store: SegmentStore, *, heard: Callable[[Deletion], Awaitable[None]]
    ) -> None:
        """``heard`` returns once whoever served a deleted topic has heard of it."""
        self._metadata = metadata
        self._store = store
        self._heard = heard
        self._writing = asyncio.Lock()
        """One at a time changes documents and folders: an older document must not overtake a newer one."""
        self._due: set[TopicName] = set()
        """Topics whose documents are not known to be up to date."""
        self._changed = asyncio.Event()
        self._deleted = asyncio.Event()
        self._lines: dict[TopicName, _Lines] = {}
        self._complaints = OnceLogger(log)

    async def run(self) -> None:
        """Write and delete what is due, until cancelled."""
        try:
            async with asyncio.TaskGroup() as duties:
                duties.create_task(_repeat(self._changed, self.write_due), name="write documents")
                duties.create_task(_repeat(self._deleted, self.delete_due), name="delete files")
        finally:
            self._lines.clear()

    def expect(self, names: Iterable[TopicName]) -> None:
        """These topics changed, or were deleted: what is due of them is done soon."""
        self._due.update(names)
        self._changed.set()
        self._deleted.set()

    async def introduce(self, names: Sequence[TopicName]) -> None:
        """Show the documents of new topics to everybody. They are durable soon: a disk syncs far fewer topics a second
        than are created, and power loss takes the leader with them, or leaves them due."""
        await self._write_all(names, is_durable=False)
        self.expect(names)

    async def write(self, names: Sequence[TopicName]) -> None:
        """Write the documents of these topics, whatever else is due; what fails is written later."""
        self.expect(names)
        await self._write_all(names)

    async def write_topic(self, name: TopicName) -> None:
        """Write the topic's own document, without its lineage; if the storage refuses it, it is written later."""
        self.expect([name])
        async with self._writing:
            topic = self._metadata.view.topics.get(name)
            if topic is None or not self._metadata.leading:
                return
            try:
                await self._store.put_documents(name, {TOPIC_DOCUMENT: topic_document(topic)})
            except StorageFailed as error:
                self._complaints.add(f"writing the documents of {name}", error)

    async def write_due(self) -> bool:
        """Write what changed. Whether all is written; what failed stays due, is logged, and keeps no other waiting."""
        return await self._write_all(sorted(self._due))

    async def _write_all(self, names: Sequence[TopicName], *, is_durable: bool = True) -> bool:
        """A few at a time, between which others have their turn."""
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
            self._complaints.add(f"writing the documents of {name}", error)
            return False
        except BaseException:  # a caller that goes away leaves it to ``run``
            self.expect([name])
            raise
        return True

    async def _write(self, name: TopicName, is_durable: bool) -> None:
        topic = self._metadata.view.topics.get(name)
        if topic is None:
            self._lines.pop(name, None)
            return
        segments = tuple(self._metadata.view.segments_of(name).values())
        lines = self._lines.setdefault(name, _Lines())
        await lines.learn(segments)
        if len(segments) > LINES_AT_ONCE:
            lineage = await asyncio.to_thread(lineage_document, name, segments, lines.of)
        else:
            lineage = lineage_document(name, segments, lines.of)
        documents = {TOPIC_DOCUMENT: topic_document(topic), LINEAGE_DOCUMENT: lineage}
        await self._store.put_documents(name, documents, is_durable=is_durable)

    async def delete(self, name: TopicName) -> None:
        """Delete what a deleted topic of this name left in the storage, if anything, once its primaries have heard of
        it. Whoever creates the next topic of the name has to wait for that, too.

        Raises:
            StorageFailed: it stays to be done.
            SeaweedMQError: it is done, but will be done again: etcd does not know.
        """
        deletions = self._metadata.view.deletions
        while (deletion := deletions.get(name)) is not None:
            await self._heard(deletion)
            async with self._writing:
                if deletions.get(name) != deletion:
                    continue  # somebody was faster, and there may be the next one
                await self._store.delete_topic(name, deletion.uid)
                revision = await self._metadata.transact([], [Delete(keys.deletion_key(name))])
                await self._metadata.view.wait_revision(revision or 0)

    async def delete_due(self) -> bool:
        """Delete what deleted topics left. Whether nothing is left; what failed stays due, is logged, and keeps no
        other waiting."""
        return all(await asyncio.gather(*map(self._try_to_delete, sorted(self._metadata.view.deletions))))

    async def _try_to_delete(self, name: TopicName) -> bool:
        if not self._metadata.leading:
            return False
        try:
            await self.delete(name)
        except SeaweedMQError as error:
            self._complaints.add(f"deleting the files of {name}", error)
            return False
        return True


async def _repeat(expected: asyncio.Event, do_what_is_due: Callable[[], Awaitable[bool]]) -> None:
    """Whenever something is expected to be due, and again after a pause while something is left."""
    loop = asyncio.get_running_loop()
    pause_s = GATHER_S
    while True:
        await expected.wait()
        heard = loop.time()
        while expected.is_set() and loop.time() - heard < GATHER_S_MAX:
            expected.clear()
            await asyncio.sleep(pause_s)
        expected.clear()
        began = loop.time()
        if not await do_what_is_due():
            expected.set()
            await asyncio.sleep(RETRY_S)
        pause_s = min(max(GATHER_S, (loop.time() - began) / WRITING_SHARE_MAX), PAUSE_S_MAX)


class _Lines:
    """Lines of one ``lineage.json``, kept while their segments are as they were: few change at a time."""

    def __init__(self) -> None:
        self._lines: dict[int, tuple[Segment, bytes]] = {}

    async def learn(self, segments: Sequence[Segment]) -> None:
        """Encode what is new, with turns for others, and forget what is gone."""
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
        """Of one that was learned."""
        return self._lines[segment.id][1]
