"""Identity of the topics whose offsets Kafka groups commit: a name may pass to another topic, an id never does.

A coordinator's view may lag behind etcd. An offset whose id differs from that of its topic in the view belongs to a
deleted topic, or to one that the view does not show yet: only etcd decides.
"""

from collections.abc import Mapping

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import topic_from_json
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.kafka.groups.classic_events import Partition
from seaweedmq.core.kafka.topic_ids import topic_id_of
from seaweedmq.model.kafka.groups import OffsetValue
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import MetaStore


class TopicIds:
    """The ids of topics, by the names that Kafka clients use."""

    def __init__(self, view: ClusterView, meta: MetaStore, namespace: str) -> None:
        self._view = view
        self._meta = meta
        self._namespace = namespace

    def known(self, topic: str) -> bytes | None:
        """Return the id of a topic in the view; None if the view has no such topic."""
        found = self._view.topics.get(TopicName(self._namespace, topic))
        return None if found is None else topic_id_of(found.uid)

    async def current(self, topic: str) -> bytes | None:
        """Return the id of a topic in etcd, None if there is none, or raise the error of an unreachable etcd."""
        entry = await self._meta.get(keys.topic_key(TopicName(self._namespace, topic)))
        return None if entry is None else topic_id_of(topic_from_json(entry.value).uid)

    async def without_deleted(self, offsets: Mapping[Partition, OffsetValue]) -> Mapping[Partition, OffsetValue]:
        """Return the offsets without those of deleted topics; raises as :meth:`current`.

        It queries etcd only for topics whose ids differ in the view.
        """
        doubtful = {topic for (topic, _), value in offsets.items() if value.topic_id not in (None, self.known(topic))}
        if not doubtful:
            return offsets
        current = {topic: await self.current(topic) for topic in sorted(doubtful)}
        return {
            (topic, number): value
            for (topic, number), value in offsets.items()
            if topic not in doubtful or value.topic_id in (None, current[topic])
        }
