"""What the leader keeps in the storage for readers without etcd, and the deletion of what deleted topics left there."""

import asyncio
import logging
from collections.abc import Iterable

from seaweedmq.broker.complaints import Complaints
from seaweedmq.broker.metadata import Metadata
from seaweedmq.codec.documents import lineage_document, topic_document
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import SegmentStore

log = logging.getLogger(__name__)

GATHER_S = 0.1
"""Changes so close to each other are written once; nor do documents get in the way of what comes before them."""
RETRY_S = 0.5


class Documents:
    """``topic.json`` and ``lineage.json`` of every topic, and the folders of deleted ones."""

    def __init__(self, metadata: Metadata, store: SegmentStore) -> None:
        self._metadata = metadata
        self._store = store
        self._writing = asyncio.Lock()
        """One at a time changes documents and folders: an older document must not overtake a newer one."""
        self._due: set[TopicName] = set()
        """Topics whose documents are not known to be up to date."""
        self._deletions_due: dict[TopicName, int] = {}
        """Deleted topics, and their uid, whose files could not be deleted yet."""
        self._expected = asyncio.Event()
        self._complaints = Complaints(log)

    async def run(self) -> None:
        """Write and delete what is due, until cancelled."""
        while True:
            await self._expected.wait()
            self._expected.clear()
            await asyncio.sleep(GATHER_S)
            if not (await self.write_due() and await self.delete_due()):
                self._expected.set()
                await asyncio.sleep(RETRY_S)

    def expect(self, names: Iterable[TopicName]) -> None:
        """These topics changed; :meth:`write_due` sees to them."""
        self._due.update(names)
        self._expected.set()

    async def write_due(self) -> bool:
        """Write what changed. Whether all is written; what failed stays due, and is logged."""
        async with self._writing:
            for name in sorted(self._due):
                if not self._metadata.leading:
                    return False
                self._due.discard(name)
                try:
                    await self._write(name)
                except SeaweedMQError as error:
                    self._due.add(name)
                    self._complaints.add(f"writing the documents of {name}", error)
                    return False
        return True

    async def _write(self, name: TopicName) -> None:
        topic = self._metadata.view.topics.get(name)
        if topic is None:
            return
        segments = self._metadata.view.segments.get(name, {}).values()
        await self._store.put_document(name, TOPIC_DOCUMENT, topic_document(topic))
        await self._store.put_document(name, LINEAGE_DOCUMENT, lineage_document(name, segments))

    def expect_deletion(self, name: TopicName, uid: int) -> None:
        """This topic was deleted; :meth:`delete_due` sees to its files."""
        self._deletions_due[name] = uid
        self._expected.set()

    def forget_deletions(self) -> None:
        """The next leader may give a name away that we would still delete."""
        self._deletions_due.clear()

    async def delete(self, name: TopicName) -> None:
        """Delete what a deleted topic left in the storage, if that was not done yet. StorageFailed."""
        async with self._writing:
            uid = self._deletions_due.get(name)
            if uid is not None:
                await self._store.delete_topic(name, uid)
                del self._deletions_due[name]

    async def delete_due(self) -> bool:
        """Delete what deleted topics left. Whether nothing is left; what failed stays due, and is logged."""
        for name in sorted(self._deletions_due):
            try:
                await self.delete(name)
            except SeaweedMQError as error:
                self._complaints.add(f"deleting the files of {name}", error)
                return False
        return True
