"""Coordinators of groups: a group's coordinator is the primary of its partition of ``__consumer_offsets``.

A broker runs one ``GroupCoordinator`` for each such partition that it leads, as soon as it leads it.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Final

from seaweedmq.broker.local import LocalPartition
from seaweedmq.broker.ports import BrokerRuntime, ClusterAccess, PartitionAccess
from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.core.kafka.groups.classic_events import CoordinatorLimits
from seaweedmq.core.kafka.groups.state_memory import StateMemory
from seaweedmq.errors import AlreadyExists, Corrupt, SeaweedMQError, Unavailable
from seaweedmq.kafka.groups.group_coordinator import GroupCoordinator
from seaweedmq.kafka.metadata.reachability import is_reachable
from seaweedmq.kafka.metadata.topic_creation import default_replicas
from seaweedmq.kafka.metadata.topic_ids import TopicIds
from seaweedmq.model.kafka.group_admin import groups_topic
from seaweedmq.model.messages.calls import CreateTopic, RaiseLowWatermark
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicSpec
from seaweedmq.runtime.retrying import after_s, backoff, retrying
from seaweedmq.shards.shard import Stage
from seaweedmq.shards.shard_log import ShardLog
from seaweedmq.shards.snapshots import AFTER_BYTES

log = logging.getLogger(__name__)

COMPACTED: Final = (("cleanup.policy", "compact"),)
"""Configs of the internal topic: no record is deleted by age or size, only below the low watermark of a snapshot."""
CREATE_TIMEOUT_S: Final = 10.0
SUCCESSOR_WAIT_S: Final = 1.0
"""Seconds that FindCoordinator waits for the successor of an unreachable coordinator; then the client retries."""
MARK_RETRY_S_FIRST, MARK_RETRY_S_MAX, MARK_TIMEOUT_S = 0.1, 5.0, 60.0


class Coordinators:
    """The group coordinators of this broker, and the lookup of all others."""

    def __init__(
        self,
        partitions: PartitionAccess,
        cluster: ClusterAccess,
        runtime: BrokerRuntime,
        *,
        snapshot_after_bytes: int = AFTER_BYTES,
    ) -> None:
        config = runtime.config
        self.topic_name = groups_topic(config.kafka_namespace)
        self.topic_ids = TopicIds(cluster.view, cluster.meta, config.kafka_namespace)
        self._partitions = partitions
        self._cluster = cluster
        self._runtime = runtime
        self._snapshot_after_bytes = snapshot_after_bytes
        largest = CoordinatorLimits()
        self._limits = replace(largest, group_bytes_max=min(largest.group_bytes_max, config.frame_bytes_max // 2))
        # A broker without a listener reserves no memory: simulated brokers, whose clients bypass the listener.
        self.memory = StateMemory(runtime.memory.groups_bytes or config.kafka_groups_bytes_max)
        self._shards: dict[int, GroupCoordinator] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._uids: dict[str, int] = {}
        """The uids of the topics of the Kafka namespace, by the name that Kafka clients use."""
        self._topic_changes = cluster.view.changed_topics()
        self._creating = asyncio.Lock()
        self._partitions_default = config.kafka_internal_partitions
        """Number of partitions of the internal topic when this broker creates it."""

    async def run(self) -> None:
        """Follow the metadata until cancelled, then stop all coordinators of this broker."""
        view = self._cluster.view
        try:
            while True:
                seen = view.changes
                self._follow()
                await view.wait_change(seen)
        finally:
            self._is_over = True
            self._topic_changes.close()
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(set(self._running))

    def shard_of(self, group: str) -> GroupCoordinator:
        """Return the coordinator of a group, or raise StaleMetadata if another broker has it.

        Raises Unavailable if no broker has it now, or its partition's files are damaged, as the message says.
        """
        topic = self._cluster.view.topics.get(self.topic_name)
        if topic is None:
            raise Unavailable(
                f"topic {self.topic_name} does not exist yet: look up the coordinator of group {group!r} first"
            )
        number = self._partition_of(group, topic)
        shard = self._shards.get(number)
        if shard is None or shard.partition.is_over:
            try:
                partition = self._partitions.leads(self.topic_name, number)
            except Corrupt as error:  # as in Apache Kafka: clients look for the coordinator until there is one
                raise Unavailable(str(error)) from error
            shard = self._serve(number, partition)
        return shard

    def here(self) -> list[GroupCoordinator]:
        """Return the coordinators of this broker, including those that are loading."""
        return [shard for shard in self._shards.values() if shard.stage is not Stage.OVER]

    async def broker_of(self, group: str) -> str:
        """Return the id of the broker that has, or is about to load, the coordinator of a group.

        The call creates the internal topic if it is missing. Clients query as soon as a coordinator is unreachable,
        before the metadata shows it, and retry the broker they get for a while (librdkafka for a second). So the call
        first probes the primary; if it is unreachable, the call waits for another one. Raises Unavailable if there is
        no coordinator now, the files of its partition are damaged, as the message says, or the topic cannot be created
        in time; and the error of its creation.
        """
        view = self._cluster.view
        topic = view.topics.get(self.topic_name) or await self._ensure_topic()
        number = self._partition_of(group, topic)
        lost = None
        try:
            async with asyncio.timeout(SUCCESSOR_WAIT_S):
                while True:
                    seen = view.changes
                    self._check_recoverable(number)
                    primary = self._primary_of(number)
                    if primary is not None and primary != lost:
                        if await is_reachable(self._cluster, primary, topic):
                            return primary
                        lost = primary
                    else:
                        await view.wait_change(seen)
        except TimeoutError:
            primary = self._primary_of(number)
        if primary is None:
            raise Unavailable(f"partition {number} of {self.topic_name} is moving to another broker: retry")
        return primary  # this broker itself may be the one that is cut off

    def _check_recoverable(self, number: int) -> None:
        segment = self._open_segment(number)
        if segment is not None and segment.problem:
            raise Unavailable(segment.problem)

    def _primary_of(self, number: int) -> str | None:
        segment = self._open_segment(number)
        return None if segment is None else segment.primary

    def _open_segment(self, number: int) -> Segment | None:
        segments = self._cluster.view.open_of(self.topic_name).values()
        return next((segment for segment in segments if number in segment.slots), None)

    def _partition_of(self, group: str, topic: Topic) -> int:
        return partition_of_group(group, topic.partitions or self._partitions_default)

    async def _ensure_topic(self) -> Topic:
        """Return the internal topic, once this broker's view has it with an open segment for every partition."""
        view = self._cluster.view
        try:
            async with asyncio.timeout(CREATE_TIMEOUT_S), self._creating:
                if self.topic_name not in view.topics:
                    await self._create()
                while True:
                    seen = view.changes
                    topic = view.topics.get(self.topic_name)
                    if topic is not None and len(view.open_of(self.topic_name)) >= (topic.partitions or 1):
                        return topic
                    await view.wait_change(seen)
        except TimeoutError:
            raise Unavailable(f"topic {self.topic_name} was not created within {CREATE_TIMEOUT_S:g} s: retry") from None

    async def _create(self) -> None:
        replicas = default_replicas(self._cluster.view)
        spec = TopicSpec(
            name=self.topic_name, partitions=self._partitions_default, replicas=replicas, configs=COMPACTED
        )
        try:
            await self._cluster.api.call(CreateTopic(spec))
        except AlreadyExists:
            log.debug("topic exists: another broker created %s at the same time", self.topic_name)

    def _follow(self) -> None:
        deleted = self._deleted()
        me = self._cluster.broker_id()
        for segment in self._cluster.view.open_of(self.topic_name).values():
            if segment.primary == me:
                self._try_serve(segment.slots.lo)
        if deleted:
            for shard in self.here():
                shard.topics_deleted(deleted)

    def _deleted(self) -> list[str]:
        """Return the deleted and recreated topics among those that changed."""
        gone = []
        for name in self._topic_changes.take_now():
            if name.namespace == self.topic_name.namespace:
                topic = self._cluster.view.topics.get(name)
                known = self._uids.pop(name.name, None)
                if topic is not None:
                    self._uids[name.name] = topic.uid
                if known is not None and (topic is None or topic.uid != known):
                    gone.append(name.name)
        return gone

    def _try_serve(self, number: int) -> None:
        shard = self._shards.get(number)
        if shard is None or shard.partition.is_over:
            try:
                self._serve(number, self._partitions.leads(self.topic_name, number))
            except SeaweedMQError as error:
                log.debug("coordinator not started: partition %d: %s; retrying", number, error)

    def _serve(self, number: int, partition: LocalPartition) -> GroupCoordinator:
        if self._is_over:
            raise Unavailable("this broker is shutting down: look up the coordinator again")
        shard = self._shards[number] = self._shard(partition)
        task = self._runtime.spawn(self._run(number, shard), f"coordinator {number} of {self.topic_name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return shard

    async def _run(self, number: int, shard: GroupCoordinator) -> None:
        """Run one coordinator after another while this broker leads the same segment."""
        while True:
            await shard.run()
            if shard.partition.is_over or self._shards.get(number) is not shard:
                break
            shard = self._shards[number] = self._shard(shard.partition)
        if self._shards.get(number) is shard:
            del self._shards[number]

    def _shard(self, partition: LocalPartition) -> GroupCoordinator:
        return GroupCoordinator(
            ShardLog(partition, self._cluster.view, frame_bytes_max=self._runtime.config.frame_bytes_max),
            limits=self._limits,
            memory=self.memory,
            env=self._runtime.env,
            topic_ids=self.topic_ids,
            raise_mark=partial(self._raise_mark, partition),
            snapshot_after_bytes=self._snapshot_after_bytes,
        )

    def _raise_mark(self, partition: LocalPartition, mark: int) -> None:
        """Raise the low watermark to the start of a snapshot; if that fails, the next snapshot raises it."""
        name = f"low watermark of partition {partition.partition} of {self.topic_name}"
        self._runtime.spawn(self._raise(partition, mark), name)

    async def _raise(self, partition: LocalPartition, mark: int) -> None:
        raising = RaiseLowWatermark(self.topic_name, {partition.partition: mark}, partition.topic.uid)
        attempts = retrying(
            backoff(self._runtime.env.rng, MARK_RETRY_S_FIRST, MARK_RETRY_S_MAX), stop=after_s(MARK_TIMEOUT_S)
        )
        try:
            await attempts(self._cluster.api.call, raising)
        except SeaweedMQError as error:
            log.warning(
                "low watermark not raised: partition %d of %s: %s; the next snapshot raises it",
                partition.partition,
                self.topic_name,
                error,
            )
