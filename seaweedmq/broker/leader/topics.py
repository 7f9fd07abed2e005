"""Topics by hand: the leader creates, alters and deletes them."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from seaweedmq.broker.leader.adoption import Adoption, holds_records
from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.metadata import Metadata, segment_put
from seaweedmq.broker.leader.placement import Placement
from seaweedmq.codec import keys
from seaweedmq.codec.metadata import deletion_to_json, topic_to_json
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.coordination.description import describe
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION
from seaweedmq.core.lineage.topology import Change, altered, check_spec, new_topic
from seaweedmq.errors import AlreadyExists, Conflict, SeaweedMQError, Unavailable
from seaweedmq.model.description import OPEN, SegmentStats, TopicDescription
from seaweedmq.model.topic import Deletion, Topic, TopicChange, TopicName, TopicSpec, created_again
from seaweedmq.ports import Compare, Delete, Environment, Put, SegmentStore

log = logging.getLogger(__name__)


class Topics:
    """The leader's answers to the calls about topics; see ``model.calls``."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        adoption: Adoption,
        documents: Documents,
        placement: Placement,
        store: SegmentStore,
        env: Environment,
        stats: Callable[[TopicName], Awaitable[tuple[SegmentStats, ...]]],
    ) -> None:
        self._metadata = metadata
        self._adoption = adoption
        self._documents = documents
        self._placement = placement
        self._store = store
        self._env = env
        self._stats = stats
        self._creating = asyncio.Lock()
        """One creation at a time: two of one name would mix their segments."""

    async def create(self, spec: TopicSpec) -> TopicDescription:
        """See ``model.calls.CreateTopic``."""
        check_spec(spec)
        if spec.schema is not None:
            spec = replace(spec, schema=_normal(spec.schema))
        async with self._creating:
            return await self._create(spec)

    async def _create(self, spec: TopicSpec) -> TopicDescription:
        if spec.name in self._metadata.view.topics:
            await self._hear_of_deletion(spec.name)
        await self._store.check()
        await self._documents.delete(spec.name)
        placement = self._placement.of_topic(spec)
        change = new_topic(spec, uid=self._env.rng.getrandbits(63), now_us=self._env.wall_us(), placement=placement)
        key = keys.topic_key(spec.name)
        # The view may lag behind: neither such a topic, nor files of an earlier one.
        free = [Compare(key, create_revision=0), Compare(keys.deletion_key(spec.name), create_revision=0)]
        # etcd bounds a transaction. Segments of a topic that is not there yet mean nothing; the topic comes last. A
        # leader that died in between may have left some, which would not fit ours.
        await self._while(free, spec.name, [Delete(keys.segments_prefix(spec.name), prefix=True)])
        for start in range(0, len(change.segments), CHANGES_PER_TRANSACTION):
            chunk = change.segments[start : start + CHANGES_PER_TRANSACTION]
            await self._while(free, spec.name, [segment_put(s) for s in chunk])
        revision = await self._while(free, spec.name, [Put(key, topic_to_json(change.topic))])
        return await self._changed(spec.name, revision)

    async def _hear_of_deletion(self, name: TopicName) -> None:
        """Whoever deleted the topic through another leader may create it again at once, though this one lags behind.

        Raises:
            AlreadyExists: etcd has it as well.
        """
        revision = await self._metadata.transact([Compare(keys.topic_key(name), create_revision=0)], [])
        if revision is None:
            raise _taken(name)
        await self._metadata.view.wait_revision(revision)

    async def _while(self, free: Sequence[Compare], name: TopicName, then: Sequence[Put | Delete]) -> int:
        """Write while the name is free; the revision."""
        revision = await self._metadata.transact(free, then)
        if revision is None:
            raise Conflict(f"{name} was created or deleted by somebody else at the same time: try again")
        return revision

    async def sweep(self) -> None:
        """Delete segments of topics that an earlier leader did not finish creating. What fails is left: it does no
        harm, and the next leader sweeps again."""
        async with self._creating:
            view = self._metadata.view
            for name in sorted(view.segments.keys() - view.topics.keys()):
                absent = Compare(keys.topic_key(name), create_revision=0)
                try:
                    await self._metadata.transact([absent], [Delete(keys.segments_prefix(name), prefix=True)])
                except SeaweedMQError as error:
                    log.warning("segments of %s, which was never quite created, stay: %s", name, error)

    async def alter(self, name: TopicName, change: TopicChange, topic_uid: int) -> TopicDescription:
        """See ``model.calls.AlterTopic``."""
        async for attempt in self._metadata.on_conflict():
            with attempt:
                topic = self._topic(name, topic_uid)
                new = altered(topic, change)
                if new == topic:
                    return describe(self._metadata.view, name)
                return await self._changed(name, await self._metadata.write(Change(new, ())))
        raise AssertionError("tenacity ends with a result or an error")

    async def delete(self, name: TopicName, topic_uid: int) -> None:
        """See ``model.calls.DeleteTopic``."""
        async for attempt in self._metadata.on_conflict():
            with attempt:
                topic = self._topic(name, topic_uid)
                primaries = tuple(sorted({s.primary for s in self._metadata.view.open_of(name).values()}))
                deletion = Deletion(name=name, uid=topic.uid, primaries=primaries)
                revision = await self._metadata.transact(
                    [Compare(keys.topic_key(name), mod_revision=self._metadata.view.topic_revision(name))],
                    [
                        Delete(keys.topic_key(name)),
                        Put(keys.deletion_key(name), deletion_to_json(deletion)),
                        Delete(keys.segments_prefix(name), prefix=True),
                        Delete(keys.topic_groups_prefix(name), prefix=True),
                        Delete(keys.topic_offsets_prefix(name), prefix=True),
                    ],
                )
                if revision is None:
                    raise Conflict(f"{name} was changed by somebody else at the same time: try again")
        await self._metadata.view.wait_revision(revision or 0)
        self._documents.expect([name])  # the files, if they can not be deleted at once
        await self._documents.delete(name)

    async def adopt_schema(self, name: TopicName, schema: bytes, topic_uid: int) -> TopicDescription:
        """See ``model.calls.AdoptSchema``."""
        schema = _normal(schema)
        topic = self._topic(name, topic_uid)
        if topic.schema is None:  # else it is decided, and nobody has to wait
            stats = await self._stats(name)
            silent = {s.id for s in describe(self._metadata.view, name, OPEN).segments} - {s.segment for s in stats}
            if silent:
                raise Unavailable(f"segment {min(silent)} of {name} is being moved, it may hold records: try again")
            taken = [s.segment for s in stats if s.high_watermark > 0]
            if taken:
                raise holds_records(name, taken[0])
        return await self._changed(name, await self._adoption.adopt(name, schema))

    def _topic(self, name: TopicName, uid: int) -> Topic:
        """The one that is meant. Nobody but the leader creates topics, so that it knows."""
        topic = self._metadata.topic(name)
        if uid not in (0, topic.uid):
            raise created_again(name)
        return topic

    async def _changed(self, name: TopicName, revision: int) -> TopicDescription:
        await self._metadata.view.wait_revision(revision)
        self._documents.expect([name])
        await self._documents.write_due()
        return describe(self._metadata.view, name)


def _taken(name: TopicName) -> AlreadyExists:
    return AlreadyExists(f"topic {name} exists: choose another name, or alter it")


def _normal(schema: bytes) -> bytes:
    """The one form in which equal schemas have equal bytes."""
    return schema_to_bytes(schema_from_bytes(schema))
