"""Segment ids that files in storage occupy, even if the counters in etcd are lower.

An etcd restored from a backup reuses ids, and one that was lost knows no topic. Files of two segments with one id would
be mistaken for each other. So the leader lists the folder of a topic once, before the first new segment of its
leadership. It also lists the folder of a name before a topic gets that name.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from seaweedmq.broker.recovery.topics import read_preamble
from seaweedmq.codec.paths import TOPIC_DOCUMENT, topic_dir
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound, Unsupported
from seaweedmq.model.files import FileKind
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore

UNKNOWN = 0
"""Placeholder for the uid of a topic whose files do not name it."""
SPARE_TOPICS = 100
"""Deleted topics that are remembered before they are dropped."""


class TakenIds:
    """The occupied ids, cached for one leadership."""

    def __init__(self, store: SegmentStore, view: ClusterView) -> None:
        self._store = store
        self._view = view
        self._free: dict[TopicName, tuple[int, int]] = {}
        """Uid of each topic, and an id above those of all segments that left files before this leadership."""
        self._listing: dict[TopicName, asyncio.Lock] = {}

    def forget(self) -> None:
        """Drop all cached ids at the end of the leadership."""
        self._free.clear()

    async def learn(self, topic: Topic) -> None:
        """Load the ids of a topic for :meth:`raised`; list its folder the first time, which may raise StorageFailed."""
        if self._is_known(topic):
            return
        try:
            async with self._listing.setdefault(topic.name, asyncio.Lock()):
                if not self._is_known(topic):
                    self._note(topic, _above(await self._store.used_segments(topic.name)))
        finally:
            self._listing.pop(topic.name, None)

    def raised(self, topic: Topic) -> Topic:
        """Return the topic, which :meth:`learn` knows, with a counter above the ids of all segments that left files."""
        uid, free = self._free.get(topic.name, (topic.uid, 0))
        return replace(topic, next_segment=free) if uid == topic.uid and free > topic.next_segment else topic

    async def first_ids(self, names: Sequence[TopicName]) -> list[int]:
        """Return the id of the first segment of each new topic. Files of deleted topics are deleted first.

        Raises InvalidArgument if a folder holds files of another topic, and StorageFailed if it cannot be listed.
        """
        listed = sorted(await self._store.with_folder(names))
        found = await asyncio.gather(*map(self._first_id, listed), return_exceptions=True)
        for failure in found:
            if isinstance(failure, BaseException):
                raise failure
        first_ids = {name: first for name, first in zip(listed, found, strict=True) if isinstance(first, int)}
        return [first_ids.get(name, 0) for name in names]

    def _is_known(self, topic: Topic) -> bool:
        return self._free.get(topic.name, (None, 0))[0] == topic.uid

    def _note(self, topic: Topic, free: int) -> None:
        self._free[topic.name] = topic.uid, free
        if len(self._free) > 2 * len(self._view.topics) + SPARE_TOPICS:
            self._free = {name: known for name, known in self._free.items() if name in self._view.topics}

    async def _first_id(self, name: TopicName) -> int:
        uids, used = await self._found(name)
        if uids and uids <= await self._store.deleted_topics():
            for uid in sorted(uids):  # a late writer recreated the deleted folder
                await self._store.delete_topic(name, uid, revision=self._view.version)
            uids, used = await self._found(name)
        if uids:
            uri, of = self._store.uri, ", ".join(str(uid) if uid != UNKNOWN else "unknown" for uid in sorted(uids))
            raise InvalidArgument(
                f"the folder {topic_dir(name)} of storage {uri} holds files of another topic {name}, uid {of}, and "
                "each topic needs a folder of its own: if that topic is of this cluster, stop the brokers and rebuild "
                f"etcd with `seaweedmq cluster recover --storage {uri} --etcd ENDPOINTS`; else move the folder away, "
                "or choose another name"
            )
        return _above(used)

    async def _found(self, name: TopicName) -> tuple[frozenset[int], frozenset[int]]:
        """Return the uids of the topics with files in a name's folder, and the segment ids that the files occupy."""
        used = await self._store.used_segments(name)
        try:
            document = await self._store.read_document(name, TOPIC_DOCUMENT)
        except NotFound:
            return (await self._uids_in_logs(name) if used else frozenset()), used
        try:
            return frozenset({topic_from_document(document).uid}), used
        except (Corrupt, Unsupported):
            return frozenset({UNKNOWN}), used

    async def _uids_in_logs(self, name: TopicName) -> frozenset[int]:
        uids = set()
        for file in await self._store.list_topic_files(name):
            if file.kind is not FileKind.LOG:
                uids.add(UNKNOWN)
                continue
            try:
                preamble = await read_preamble(self._store, file)
            except (Corrupt, Unsupported):
                uids.add(UNKNOWN)
                continue
            if preamble is not None:  # None: its creation was interrupted, and it is empty
                uids.add(preamble.topic_uid)
        return frozenset(uids)


def _above(used: frozenset[int]) -> int:
    return max(used, default=-1) + 1
