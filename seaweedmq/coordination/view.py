"""A live mirror of the cluster's metadata: listed once, then updated by a watch."""

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from dataclasses import replace

from seaweedmq.codec.state import keys
from seaweedmq.coordination.changed_topics import ChangedTopics
from seaweedmq.coordination.mirrored_values import (
    Departure,
    LeaderLock,
    StaleRegistration,
    Value,
    identity_in,
    read_value,
)
from seaweedmq.coordination.open_counts import OpenCounts
from seaweedmq.coordination.waiting import end_watch
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.cluster import ClusterIdentity
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import Deletion, LowWatermarks, Topic, TopicName
from seaweedmq.ports import Changes, Entry, MetaStore, Snapshot
from seaweedmq.runtime.retrying import backoff, retrying

_log = logging.getLogger(__name__)

READ_AT_ONCE = 1_000
"""Values of a listing that are decoded before other tasks run."""
RETRY_S_FIRST, RETRY_S_MAX = 0.1, 2.0
REVISION_BITS = 40
"""Bits of a version below the generation: a million changes a second would take twelve days to fill them."""


class ClusterView:
    """Brokers, topics, segments and leader as of ``revision``, which may lag behind the store by a moment.

    The mappings are live: do not expect one to be unchanged after an await. The changes of one transaction appear
    together.
    """

    def __init__(
        self, store: MetaStore, rng: random.Random, recognizes: Callable[[Snapshot, int, int], bool] = lambda *_: True
    ) -> None:
        """Create the view; ``recognizes`` decides whether to mirror a listing.

        An etcd that is lost or restored must not take segments from brokers that serve them. ``recognizes`` also gets
        the revision of the mirror, and the modification revision of ``keys.CLUSTER_SEEN`` in it.
        """
        self.revision = 0
        """Revision of the store that is mirrored; 0 before the first listing."""
        self.changes = 0
        """Number of applied changes, see :meth:`wait_change`."""
        self.leader: str | None = None
        """Broker id of the holder of the leader lock."""
        self.left: set[str] = set()
        """Ids of brokers that recently left in good order: they no longer acknowledge records."""
        self.stale_registrations: dict[str, int] = {}
        """Modification revisions of broker and address keys without a lease, by key."""
        self._brokers: dict[str, BrokerInfo] = {}
        self._topics: dict[TopicName, Topic] = {}
        self._segments: dict[TopicName, dict[int, Segment]] = {}
        self._open: dict[TopicName, dict[int, Segment]] = {}
        self._low: dict[TopicName, LowWatermarks] = {}
        """Low watermarks, which are part of ``topics``, and leftovers of deleted topics."""
        self._deletions: dict[TopicName, Deletion] = {}
        self.brokers: Mapping[str, BrokerInfo] = self._brokers
        self.topics: Mapping[TopicName, Topic] = self._topics
        self.segments: Mapping[TopicName, Mapping[int, Segment]] = self._segments
        """Segments by topic and id, open and sealed. A topic without segments is not in it."""
        self.open_segments: Mapping[TopicName, Mapping[int, Segment]] = self._open
        """Open part of ``segments``: its readers do not pay for the sealed ones."""
        self.deletions: Mapping[TopicName, Deletion] = self._deletions
        """Deleted topics whose files may still exist. None of them is in ``topics``."""
        self._counts = OpenCounts()
        self.carried = self._counts.carried
        """Number of open segments of topics by replica. It may contain brokers that left."""
        self.led = self._counts.led
        """Number of open segments of topics by primary."""
        self._sealed: dict[SegmentId, tuple[float, bool]] = {}
        """Event loop time since when this view knows each sealed segment, and whether it saw the sealing."""
        self._readers: list[ChangedTopics] = []
        self._touched: dict[TopicName, None] = {}
        """Topics that changed since the last announcement."""
        self._store = store
        self._rng = rng
        self._recognizes = recognizes
        self.cluster: ClusterIdentity | None = None
        """Identity of the cluster in etcd."""
        self._mod_revisions: dict[str, int] = {}
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Mirror the store until cancelled, listing again after each failure; pauses grow if watches fail at once."""
        loop = asyncio.get_running_loop()
        pause_s = backoff(self._rng, RETRY_S_FIRST, RETRY_S_MAX)
        broken = 0
        while True:
            listing = retrying(pause_s, on=SeaweedMQError)
            snapshot: Snapshot = await listing(self._list)
            await self._replace(snapshot)
            began = loop.time()
            try:
                await self._follow()
            except SeaweedMQError as error:
                broken = broken + 1 if loop.time() - began < RETRY_S_MAX else 1
                _log.log(logging.INFO if broken == 1 else logging.DEBUG, "metadata watch ended: %s; retrying", error)
                await asyncio.sleep(pause_s(broken))

    async def _list(self) -> Snapshot:
        snapshot = await self._store.list(keys.ROOT)
        if not self._recognizes(snapshot, self.revision, self._mod_revisions.get(keys.CLUSTER_SEEN, 0)):
            raise Unavailable("etcd has the metadata of another cluster, or older metadata: retry")
        return snapshot

    async def ready(self) -> None:
        """Return once the first listing is applied. No deadline."""
        await self.wait_revision(1)

    def broker_named(self, name: str) -> BrokerInfo:
        """Return the broker with this id or address, or raise NotFound."""
        for broker in self._brokers.values():
            if name in (broker.id, broker.address):
                return broker
        known = ", ".join(sorted(broker.address for broker in self._brokers.values()))
        raise NotFound(f"there is no broker {name}: the cluster has {known}")

    def segment(self, segment: SegmentId) -> Segment | None:
        """Return a segment; None if it does not exist."""
        return self._segments.get(segment.topic, {}).get(segment.number)

    def sealed_for_s(self, segment: Segment) -> float:
        """Return how long this view has known that a segment is sealed, in seconds by the event loop's clock.

        The segment was sealed at least that long ago, regardless of its stamps. 0 for an open or unknown one.
        """
        known = self._sealed.get(segment.key)
        return 0.0 if known is None else asyncio.get_running_loop().time() - known[0]

    def saw_sealing(self, segment: Segment) -> bool:
        """Whether this view saw the segment being sealed, so that ``sealed_for_s`` is its exact age."""
        return self._sealed.get(segment.key, (0.0, False))[1]

    def segments_of(self, name: TopicName) -> Mapping[int, Segment]:
        """Return the segments of a topic by id, open and sealed; empty if there is no such topic."""
        return self._segments.get(name, {})

    def open_of(self, name: TopicName) -> Mapping[int, Segment]:
        """Return the open segments of a topic by id."""
        return self._open.get(name, {})

    def find(self, name: TopicName, uid: int, segment: int) -> tuple[Topic, Segment] | None:
        """Return a segment and its topic; None if it does not exist, or the topic of this name has another uid."""
        topic, found = self._topics.get(name), self.segment(SegmentId(name, segment))
        return (topic, found) if topic is not None and topic.uid == uid and found is not None else None

    def topic_revision(self, name: TopicName) -> int:
        """Return the modification revision of the topic's key; 0 if there is no such topic."""
        return self._mod_revisions[keys.topic_key(name)] if name in self._topics else 0

    @property
    def cluster_revision(self) -> int:
        """Modification revision of the cluster's key; 0 without one."""
        return self._mod_revisions.get(keys.CLUSTER, 0)

    def low_watermarks_revision(self, name: TopicName) -> int:
        """Return the modification revision of the key of the topic's low watermarks; 0 without one."""
        return self._mod_revisions[keys.low_watermarks_key(name)] if name in self._low else 0

    def topic_version(self, name: TopicName) -> int:
        """Return the revision of the topic's key as a :attr:`version`; 0 if there is no such topic."""
        revision = self.topic_revision(name)
        return revision and self._generation << REVISION_BITS | revision

    @property
    def version(self) -> int:
        """Revision of the view below the cluster's generation: it rises although a recovered etcd counts from 1."""
        return self._generation << REVISION_BITS | self.revision

    @property
    def _generation(self) -> int:
        return 0 if self.cluster is None else self.cluster.generation

    def segment_revision(self, segment: SegmentId) -> int:
        """Return the modification revision of the segment's key; 0 if there is no such segment."""
        known = self.segment(segment) is not None
        return self._mod_revisions[keys.segment_key(*segment)] if known else 0

    async def wait_revision(self, revision: int) -> None:
        """Return once the view has at least that revision, or etcd was recovered meanwhile. No deadline."""
        generation = self._generation
        while self.revision < revision and self._generation == generation:
            await self._changed.wait()

    async def wait_version(self, version: int) -> None:
        """Return once the view has at least that :attr:`version`. No deadline."""
        while self.version < version:
            await self._changed.wait()

    async def wait_change(self, seen: int) -> int:
        """Return ``changes`` once it is above ``seen``. No deadline."""
        while self.changes <= seen:
            await self._changed.wait()
        return self.changes

    def changed_topics(self) -> ChangedTopics:
        """Return a reader of the changes from now on, until it is closed. It begins with all topics."""
        reader = ChangedTopics(self._readers)
        reader.add(self._topics)
        return reader

    def announce_all(self) -> None:
        """Announce a change of everything: decisions by the same metadata also depend on something else."""
        self._touched.update(dict.fromkeys((*self._topics, *self._open)))
        self._announce(self.revision)

    def wake(self) -> None:
        """Announce a change without a topic: waiting tasks evaluate their conditions again."""
        self._announce(self.revision)

    async def _follow(self) -> None:
        watch = self._store.watch(keys.ROOT, self.revision + 1)
        try:
            async for changes in watch:
                if keys.CLUSTER in changes.deletes or any(entry.key == keys.CLUSTER for entry in changes.puts):
                    raise Unavailable("the identity of the cluster changed in etcd")
                self._apply(changes)
        finally:
            await end_watch(watch)
        raise Unavailable("the metadata watch ended")

    def _apply(self, changes: Changes) -> None:
        for key in changes.deletes:
            self._forget(key)
        for entry in changes.puts:
            self._learn(entry, read_value(entry), is_new=True)
        self._announce(changes.revision)

    async def _replace(self, snapshot: Snapshot) -> None:
        """Become the snapshot: decode changed values alone, yielding to other tasks, then apply all at once."""
        changed: list[tuple[Entry, Value]] = []
        cluster = identity_in(snapshot)
        known: Mapping[str, int] = self._mod_revisions
        if snapshot.revision < self.revision or cluster != self.cluster:
            known = {}  # the same revision may now be that of another value
        for at in range(0, len(snapshot.entries), READ_AT_ONCE):
            page = snapshot.entries[at : at + READ_AT_ONCE]
            changed += [(entry, read_value(entry)) for entry in page if known.get(entry.key) != entry.mod_revision]
            await asyncio.sleep(0)
        self.cluster = cluster
        for key in self._mod_revisions.keys() - {entry.key for entry in snapshot.entries}:
            self._forget(key)
        for entry, value in changed:
            self._learn(entry, value, is_new=False)
        self._announce(snapshot.revision)

    def _announce(self, revision: int) -> None:
        self.revision = revision
        self.changes += 1
        if self._touched:
            for reader in self._readers:
                reader.add(self._touched)
            self._touched.clear()
        self._changed.set()
        self._changed = asyncio.Event()

    def _learn(self, entry: Entry, value: Value, *, is_new: bool) -> None:
        """Apply one decoded value; ``is_new``: it has just changed, not at some time since the last listing."""
        self._mod_revisions[entry.key] = entry.mod_revision
        self.stale_registrations.pop(entry.key, None)
        match value:
            case Segment():
                self._touched[value.topic] = None
                self._note_sealing(value, is_new)
                self._segments.setdefault(value.topic, {})[value.id] = value
                self._close(value.topic, value.id)
                if value.is_open:
                    self._open.setdefault(value.topic, {})[value.id] = value
                    if value.topic in self._topics:
                        self._counts.add(value)
            case Topic():
                self._learn_topic(value)
            case LowWatermarks():
                self._low[value.name] = value
                if value.name in self._topics:
                    self._learn_topic(self._topics[value.name])
            case Deletion():
                self._deletions[value.name] = value
            case BrokerInfo():
                self._brokers[value.id] = value
            case LeaderLock():
                self.leader = value.broker_id
            case Departure():
                self.left.add(value.broker_id)
            case StaleRegistration():
                self._drop(entry.key)
                self.stale_registrations[entry.key] = entry.mod_revision
            case None:
                self._drop(entry.key)  # the previous value may have been readable

    def _note_sealing(self, segment: Segment, is_new: bool) -> None:
        """Record the time of a sealing. The previous state of the segment must still be in place."""
        before = self.segment(segment.key)
        if segment.is_open:
            self._sealed.pop(segment.key, None)
        elif before is None or before.is_open or before.opened_us != segment.opened_us:  # of a recreated topic
            self._sealed[segment.key] = asyncio.get_running_loop().time(), is_new

    def _learn_topic(self, topic: Topic) -> None:
        """Apply a topic with its low watermarks, which have a key of their own."""
        low = self._low.get(topic.name)
        offsets = low.offsets if low is not None and low.uid == topic.uid else ()
        self._touched[topic.name] = None
        if topic.name not in self._topics:
            for segment in self._open.get(topic.name, {}).values():
                self._counts.add(segment)
        self._topics[topic.name] = topic if topic.low_watermarks == offsets else replace(topic, low_watermarks=offsets)

    def _close(self, name: TopicName, segment: int) -> None:
        """Remove a segment from the open ones, if it is there."""
        was = _take_out(self._open, name, segment)
        if was is not None and name in self._topics:
            self._counts.remove(was)

    def _forget(self, key: str) -> None:
        if self._mod_revisions.pop(key, None) is not None:
            self._drop(key)

    def _drop(self, key: str) -> None:
        self.stale_registrations.pop(key, None)
        try:
            if key.startswith(keys.SEGMENTS):
                name, segment = keys.parse_segment_key(key)
                self._touched[name] = None
                _take_out(self._segments, name, segment)
                self._sealed.pop(SegmentId(name, segment), None)
                self._close(name, segment)
            elif key.startswith(keys.TOPICS):
                name = keys.parse_topic_key(key)
                self._touched[name] = None
                if self._topics.pop(name, None) is not None:
                    for left in self._open.get(name, {}).values():
                        self._counts.remove(left)
            elif key.startswith(keys.LOW_WATERMARKS):
                name = keys.parse_low_watermarks_key(key)
                self._low.pop(name, None)
                if name in self._topics:
                    self._learn_topic(self._topics[name])
            elif key.startswith(keys.DELETIONS):
                self._deletions.pop(keys.parse_deletion_key(key), None)
            elif key.startswith(keys.BROKERS):
                self._brokers.pop(keys.parse_broker_key(key), None)
            elif key.startswith(keys.LEFT):
                self.left.discard(keys.parse_left_key(key))
            elif key == keys.LEADER:
                self.leader = None
        except Corrupt as error:
            _log.debug("foreign key deleted: %s", error)


def _take_out(segments: dict[TopicName, dict[int, Segment]], name: TopicName, segment: int) -> Segment | None:
    of_topic = segments.get(name)
    if of_topic is None:
        return None
    taken = of_topic.pop(segment, None)
    if not of_topic:
        del segments[name]
    return taken
