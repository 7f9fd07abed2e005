"""Administration of topics: the leader creates, alters and deletes them."""

import logging
from collections.abc import Awaitable, Callable, Sequence

from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.leader.topics.schema_adopter import SchemaAdopter, holds_records
from seaweedmq.broker.leader.topics.topic_creator import TopicCreator
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import deletion_to_json
from seaweedmq.codec.topic_schema import normal_schema
from seaweedmq.coordination.description import describe
from seaweedmq.core.lineage.problems import check_recoverable
from seaweedmq.core.lineage.topology import MetadataChange, altered, check_more_partitions
from seaweedmq.errors import Conflict, StaleMetadata, Unavailable
from seaweedmq.model.description import OPEN, SegmentStats, TopicDescription
from seaweedmq.model.kafka.group_admin import groups_topic
from seaweedmq.model.topic import Deletion, Topic, TopicChange, TopicName, TopicSpec, topic_recreated
from seaweedmq.ports import Compare, Delete, Put

log = logging.getLogger(__name__)


class TopicAdmin:
    """The leader's answers to the calls about topics, see ``model.calls``."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        schema_adopter: SchemaAdopter,
        documents: Documents,
        topic_creator: TopicCreator,
        stats: Callable[[TopicName], Awaitable[tuple[SegmentStats, ...]]],
    ) -> None:
        self._metadata = metadata
        self._schema_adopter = schema_adopter
        self._documents = documents
        self._topic_creator = topic_creator
        self._stats = stats

    async def create(self, specs: Sequence[TopicSpec]) -> tuple[TopicDescription, ...]:
        """Answer ``model.calls.CreateTopics``."""
        await self._topic_creator.create(specs)
        names = [spec.name for spec in specs]
        await self._documents.introduce(names)
        return tuple(describe(self._metadata.view, name) for name in names)

    async def sweep(self) -> None:
        """Run ``TopicCreator.sweep``."""
        await self._topic_creator.sweep()

    async def alter(self, name: TopicName, change: TopicChange, topic_uid: int, revision: int = 0) -> TopicDescription:
        """Answer ``model.calls.AlterTopic``."""
        async for attempt in self._metadata.on_conflict():
            with attempt:
                topic = self._topic(name, topic_uid)
                if revision not in (0, self._metadata.view.topic_version(name)):
                    raise StaleMetadata(f"{name} has changed since it was read: read it again")
                new = altered(topic, change)
                if change.partitions is not None:
                    check_more_partitions(topic, change.partitions)
                if new != topic:
                    await self._metadata.view.wait_revision(await self._metadata.write(MetadataChange(new, ())))
        if change.partitions is not None:
            await self._topic_creator.add_partitions(name, topic.uid, change.partitions)
        if self._topic(name, topic.uid) != topic:
            await self._documents.write([name])
        return describe(self._metadata.view, name)

    async def delete(self, name: TopicName, topic_uid: int) -> None:
        """Answer ``model.calls.DeleteTopic``."""
        async for attempt in self._metadata.on_conflict():
            with attempt:
                topic = self._topic(name, topic_uid)
                deletion = Deletion(name=name, uid=topic.uid, primaries=self._waited_for(name))
                revision = await self._metadata.transact(
                    [Compare(keys.topic_key(name), mod_revision=self._metadata.view.topic_revision(name))],
                    [
                        Delete(keys.topic_key(name)),
                        Delete(keys.low_watermarks_key(name)),
                        Put(keys.deletion_key(name), deletion_to_json(deletion)),
                        Delete(keys.segments_prefix(name), prefix=True),
                        Delete(keys.topic_groups_prefix(name), prefix=True),
                        Delete(keys.topic_offsets_prefix(name), prefix=True),
                    ],
                )
                if revision is None:
                    raise Conflict(f"{name} changed concurrently: retry")
        await self._metadata.view.wait_revision(revision or 0)
        self._documents.expect([name])  # retries the deletion of the files if the next line fails
        await self._documents.delete(name)

    def _waited_for(self, name: TopicName) -> tuple[str, ...]:
        """Return the brokers that must know of a topic's deletion before its name is free.

        These are the primaries, which acknowledge records, and the coordinators of Kafka groups, which commit offsets
        to the topic that has the name in their view.
        """
        view = self._metadata.view
        coordinators = view.open_of(groups_topic(name.namespace)).values()
        return tuple(sorted({s.primary for s in (*view.open_of(name).values(), *coordinators)}))

    async def adopt_schema(self, name: TopicName, schema: bytes, topic_uid: int) -> TopicDescription:
        """Answer ``model.calls.AdoptSchema``."""
        schema = normal_schema(schema)
        topic = self._topic(name, topic_uid)
        if topic.schema is None:  # else it is decided, without a wait
            stats = await self._stats(name)
            opened = describe(self._metadata.view, name, OPEN).segments
            for segment in opened:
                check_recoverable(segment)
            silent = {s.id for s in opened} - {s.segment for s in stats}
            if silent:
                raise Unavailable(f"segment {min(silent)} of {name} is being moved and may hold records: retry")
            taken = [s.segment for s in stats if s.high_watermark > 0]
            if taken:
                raise holds_records(name, taken[0])
        return await self._changed(name, await self._schema_adopter.adopt(name, schema))

    def _topic(self, name: TopicName, uid: int) -> Topic:
        """Return the topic with that uid. The leader knows it, since only leaders create topics."""
        topic = self._metadata.topic(name)
        if uid not in (0, topic.uid):
            raise topic_recreated(name)
        return topic

    async def _changed(self, name: TopicName, revision: int) -> TopicDescription:
        await self._metadata.view.wait_revision(revision)
        await self._documents.write([name])
        return describe(self._metadata.view, name)
