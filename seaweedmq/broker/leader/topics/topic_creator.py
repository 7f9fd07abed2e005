"""Creation of topics, many in one transaction."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.metadata import Metadata, segment_put
from seaweedmq.broker.leader.placement import Placement
from seaweedmq.broker.leader.topics.taken_ids import TakenIds
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import topic_to_json
from seaweedmq.codec.topic_schema import normal_schema
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION, COMPARES_PER_TRANSACTION
from seaweedmq.core.lineage.topology import (
    MetadataChange,
    check_more_partitions,
    check_spec,
    new_topic,
    with_partitions,
)
from seaweedmq.errors import AlreadyExists, Conflict, InvalidArgument, SeaweedMQError
from seaweedmq.model.topic import TOPICS_AT_ONCE_MAX, Topic, TopicName, TopicSpec, topic_recreated
from seaweedmq.ports import Compare, Delete, Environment, Put, SegmentStore

log = logging.getLogger(__name__)

COMPARES_PER_TOPIC = 2


class TopicCreator:
    """The leader's part of ``calls.CreateTopics``."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        documents: Documents,
        placement: Placement,
        taken_ids: TakenIds,
        store: SegmentStore,
        env: Environment,
    ) -> None:
        self._metadata = metadata
        self._documents = documents
        self._placement = placement
        self._taken_ids = taken_ids
        self._store = store
        self._env = env
        self._creating = asyncio.Lock()
        """Lock of creations: two concurrent calls of one name would mix their segments."""
        self._uncertain: set[TopicName] = set()
        """Names whose creation failed, so that segments may be left."""

    async def create(self, specs: Sequence[TopicSpec]) -> None:
        """Create topics; on return the view has them.

        All specs are checked before any topic is created. If etcd fails midway, the topics before the failure exist.

        Raises:
            InvalidArgument: If a spec breaks a rule, there is no room, or a folder holds files of another topic.
            AlreadyExists: If a topic exists.
            Conflict: If a topic is created or deleted concurrently.
        """
        specs = [_checked(spec) for spec in specs]
        _check_names([spec.name for spec in specs])
        async with self._creating:
            await self._create(specs)

    async def _create(self, specs: Sequence[TopicSpec]) -> None:
        for spec in specs:
            if spec.name in self._metadata.view.topics:
                await self._catch_up_with_deletion(spec.name)
        await self._store.check()
        for spec in specs:
            await self._documents.delete(spec.name)
        first_ids = await self._taken_ids.first_ids([spec.name for spec in specs])
        now_us, rng = self._env.wall_us(), self._env.rng
        changes = [
            new_topic(spec, uid=rng.getrandbits(63), now_us=now_us, placement=placement, first_id=first_id)
            for spec, placement, first_id in zip(specs, self._placement.of_topics(specs), first_ids, strict=True)
        ]
        revision = 0
        for together in _by_transaction(changes):
            revision = await self._write(together)
        await self._metadata.view.wait_revision(revision)  # or the next call of one of the names would miss it

    async def add_partitions(self, name: TopicName, uid: int, partitions: int) -> None:
        """Grow a topic to a number of partitions; on return the view has them.

        If etcd fails midway, some of them exist, and the same call adds the others. Raises InvalidArgument if
        ``topology.check_more_partitions`` rejects the number or there is no room, and NotFound if the topic was
        deleted.
        """
        async with self._creating:
            async for attempt in self._metadata.on_conflict():
                with attempt:
                    await self._taken_ids.learn(self._metadata.topic(name))
                    while not await self._grow(self._metadata.topic(name), uid, partitions):
                        pass

    async def _grow(self, topic: Topic, uid: int, partitions: int) -> bool:
        """Add as many partitions as one transaction takes; return whether that is all."""
        if topic.uid != uid:
            raise topic_recreated(topic.name)
        check_more_partitions(topic, partitions)
        before = topic.partitions or 0
        upto = min(partitions, before + CHANGES_PER_TRANSACTION - 1)
        if upto > before:
            more = TopicSpec(name=topic.name, segments=upto - before, replicas=topic.replicas)
            (placement,) = self._placement.of_topics([more])
            known = self._taken_ids.raised(topic)
            change = with_partitions(known, upto, now_us=self._env.wall_us(), placement=placement)
            await self._metadata.view.wait_revision(await self._metadata.write(change))
        return upto == partitions

    async def _write(self, changes: Sequence[MetadataChange]) -> int:
        names = [change.topic.name for change in changes]
        try:
            for name in names:
                if name in self._uncertain or name in self._metadata.view.segments:
                    await self._while_free([name], [Delete(keys.segments_prefix(name), prefix=True)])
            puts = [put for change in changes for put in _puts(change)]
            # etcd limits a transaction. Segments of a topic that does not exist yet have no effect; the topic comes
            # last.
            for start in range(0, len(puts), CHANGES_PER_TRANSACTION):
                revision = await self._while_free(names, puts[start : start + CHANGES_PER_TRANSACTION])
        except BaseException:
            self._uncertain.update(names)
            raise
        self._uncertain.difference_update(names)
        return revision

    async def _while_free(self, names: Iterable[TopicName], then: Sequence[Put | Delete]) -> int:
        """Write if no topic of the names exists, and no files of an earlier one; return the write's revision.

        The view may be behind.
        """
        free = [
            Compare(key, create_revision=0) for name in names for key in (keys.topic_key(name), keys.deletion_key(name))
        ]
        revision = await self._metadata.transact(free, then)
        if revision is None:
            raise Conflict(f"{', '.join(map(str, names))}: created or deleted concurrently: retry")
        return revision

    async def _catch_up_with_deletion(self, name: TopicName) -> None:
        """Catch up with a deletion through an earlier leader: its caller may recreate the topic at once.

        Raises AlreadyExists if the topic exists in etcd as well as in this view, which may lag behind.
        """
        revision = await self._metadata.transact([Compare(keys.topic_key(name), create_revision=0)], [])
        if revision is None:
            raise AlreadyExists(f"topic {name} exists: choose another name, or alter it")
        await self._metadata.view.wait_revision(revision)

    async def sweep(self) -> None:
        """Delete segments of topics that an earlier leader did not finish. If that fails, the next one sweeps."""
        async with self._creating:
            view = self._metadata.view
            for name in sorted(view.segments.keys() - view.topics.keys()):
                absent = Compare(keys.topic_key(name), create_revision=0)
                try:
                    await self._metadata.transact([absent], [Delete(keys.segments_prefix(name), prefix=True)])
                except SeaweedMQError as error:
                    log.warning("cleanup of unfinished topic creation failed: %s: %s", name, error)


def _checked(spec: TopicSpec) -> TopicSpec:
    check_spec(spec)
    return spec if spec.schema is None else replace(spec, schema=normal_schema(spec.schema))


def _check_names(names: Sequence[TopicName]) -> None:
    if len(names) > TOPICS_AT_ONCE_MAX:
        raise InvalidArgument(f"{len(names)} topics in one call: create at most {TOPICS_AT_ONCE_MAX} at once")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidArgument(f"{twice[0]} occurs twice: name each topic once")


def _by_transaction(changes: Sequence[MetadataChange]) -> Iterator[Sequence[MetadataChange]]:
    """Yield the changes of one transaction after another; a change too large for any is alone."""
    together: list[MetadataChange] = []
    size = 0
    for change in changes:
        keys_wanted = len(change.segments) + 1
        crowded = (len(together) + 1) * COMPARES_PER_TOPIC > COMPARES_PER_TRANSACTION
        if together and (size + keys_wanted > CHANGES_PER_TRANSACTION or crowded):
            yield together
            together, size = [], 0
        together.append(change)
        size += keys_wanted
    if together:
        yield together


def _puts(change: MetadataChange) -> list[Put]:
    """Return the writes of a change, the topic last."""
    topic = Put(keys.topic_key(change.topic.name), topic_to_json(change.topic))
    return [*map(segment_put, change.segments), topic]
