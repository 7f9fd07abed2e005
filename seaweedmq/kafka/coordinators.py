"""Which broker coordinates a group: the primary of the partition of ``__consumer_offsets`` that the group is in.

Each of them has a ``Shard`` for every such partition that it leads, from the moment that it does.
"""

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import Final

from seaweedmq.broker.local import LocalBroker, LocalPartition
from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.core.kafka.classic_events import CoordinatorLimits
from seaweedmq.core.kafka.state_memory import StateMemory
from seaweedmq.errors import AlreadyExists, Corrupt, SeaweedMQError, Unavailable
from seaweedmq.kafka.metadata.metadata_api import default_replicas
from seaweedmq.kafka.metadata.reachability import is_reachable
from seaweedmq.kafka.metadata.topic_ids import TopicIds
from seaweedmq.kafka.shard import Shard, Stage
from seaweedmq.kafka.shard_log import ShardLog
from seaweedmq.kafka.shard_snapshots import AFTER_BYTES
from seaweedmq.model.calls import CreateTopic, RaiseLowWatermark
from seaweedmq.model.kafka_group_admin import groups_topic
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicSpec
from seaweedmq.runtime.retrying import after_s, backoff, retrying

log = logging.getLogger(__name__)

COMPACTED: Final = (("cleanup.policy", "compact"),)
"""Nothing goes by age or size; what a snapshot replaced goes by the low watermark."""
CREATE_TIMEOUT_S: Final = 10.0
SUCCESSOR_WAIT_S: Final = 1.0
"""How long clients wait for who comes after a coordinator that is lost; then they ask again as they see fit."""
MARK_RETRY_FIRST_S, MARK_RETRY_MOST_S, MARK_TIMEOUT_S = 0.1, 5.0, 60.0


class Coordinators:
    """The coordinators of groups that are here, and where the others are."""

    def __init__(self, broker: LocalBroker, *, snapshot_after_bytes: int = AFTER_BYTES) -> None:
        self.topic_name = groups_topic(broker.config.kafka_namespace)
        self.topic_ids = TopicIds(broker.view, broker.meta, broker.config.kafka_namespace)
        self._broker = broker
        self._partitions = broker.config.kafka_internal_partitions
        """Of the internal topic, if there is none yet."""
        self._snapshot_after_bytes = snapshot_after_bytes
        largest = CoordinatorLimits()
        self._limits = replace(
            largest, group_bytes_max=min(largest.group_bytes_max, broker.config.frame_bytes_max // 2)
        )
        # Without a listener nothing is set aside, as in simulated brokers, whose clients come in another way.
        self.memory = StateMemory(broker.memory.groups_bytes or broker.config.kafka_groups_bytes_max)
        self._shards: dict[int, Shard] = {}
        self._running: set[asyncio.Task[None]] = set()
        self._is_over = False
        self._uids: dict[str, int] = {}
        """Of the topics that Kafka's clients see, by the name that they use."""
        self._news = broker.view.news()
        self._creating = asyncio.Lock()

    async def run(self) -> None:
        """Follow the metadata until cancelled; then all coordinators here are over."""
        view = self._broker.view
        try:
            while True:
                seen = view.changes
                self._follow()
                await view.wait_change(seen)
        finally:
            self._is_over = True
            self._news.close()
            for task in self._running:
                task.cancel()
            if self._running:
                await asyncio.wait(set(self._running))

    # --- groups -------------------------------------------------------------------------------------------------------

    def shard_of(self, group: str) -> Shard:
        """The coordinator of a group.

        Raises:
            StaleMetadata: it is at another broker.
            Unavailable: it is nowhere at the moment, or the files of its partition are damaged, which is named.
        """
        topic = self._broker.view.topics.get(self.topic_name)
        if topic is None:
            raise Unavailable(
                f"there is no topic {self.topic_name} yet: ask for the coordinator of group {group!r} first"
            )
        number = self._partition_of(group, topic)
        shard = self._shards.get(number)
        if shard is None or shard.partition.is_over:
            try:
                partition = self._broker.leads(self.topic_name, number)
            except Corrupt as error:  # as of Kafka: clients ask for another coordinator until there is one
                raise Unavailable(str(error)) from error
            shard = self._serve(number, partition)
        return shard

    def here(self) -> list[Shard]:
        """The coordinators at this broker, those that load among them."""
        return [shard for shard in self._shards.values() if shard.stage is not Stage.OVER]

    async def broker_of(self, group: str) -> str:
        """Id of the broker where the coordinator of a group is, or will be as soon as it has loaded. Makes the internal
        topic if there is none.

        Clients ask as soon as a coordinator is gone, before the metadata say so, and whom they are told then they try
        for a while (librdkafka for a second): the broker that it would be is asked first whether it lives, and if not
        another one is waited for.

        Raises:
            Unavailable: there is none at the moment, the files of its partition are damaged, which is named, or the
                topic cannot be made in time.
            SeaweedMQError: as creating a topic.
        """
        view = self._broker.view
        topic = view.topics.get(self.topic_name) or await self._created()
        number = self._partition_of(group, topic)
        lost = None
        try:
            async with asyncio.timeout(SUCCESSOR_WAIT_S):
                while True:
                    seen = view.changes
                    self._check_recoverable(number)
                    primary = self._primary_of(number)
                    if primary is not None and primary != lost:
                        if await is_reachable(self._broker, primary, topic):
                            return primary
                        lost = primary
                    else:
                        await view.wait_change(seen)
        except TimeoutError:
            primary = self._primary_of(number)
        if primary is None:
            raise Unavailable(f"partition {number} of {self.topic_name} is moving to another broker: retry")
        return primary  # it may be this broker that is cut off

    def _check_recoverable(self, number: int) -> None:
        segment = self._open_segment(number)
        if segment is not None and segment.problem:
            raise Unavailable(segment.problem)

    def _primary_of(self, number: int) -> str | None:
        segment = self._open_segment(number)
        return None if segment is None else segment.primary

    def _open_segment(self, number: int) -> Segment | None:
        segments = self._broker.view.open_of(self.topic_name).values()
        return next((segment for segment in segments if number in segment.slots), None)

    def _partition_of(self, group: str, topic: Topic) -> int:
        return partition_of_group(group, topic.partitions or self._partitions)

    async def _created(self) -> Topic:
        """The internal topic, once this broker sees it and somebody leads all of it."""
        view = self._broker.view
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
            raise Unavailable(f"topic {self.topic_name} was not there after {CREATE_TIMEOUT_S:g} s: retry") from None

    async def _create(self) -> None:
        replicas = default_replicas(self._broker.view)
        spec = TopicSpec(name=self.topic_name, partitions=self._partitions, replicas=replicas, configs=COMPACTED)
        try:
            await self._broker.api.call(CreateTopic(spec))
        except AlreadyExists:
            log.debug("%s was made by another broker at the same time", self.topic_name)

    # --- what the metadata say ----------------------------------------------------------------------------------------

    def _follow(self) -> None:
        deleted = self._deleted()
        me = self._broker.id
        for segment in self._broker.view.open_of(self.topic_name).values():
            if segment.primary == me:
                self._try_serve(segment.slots.lo)
        if deleted:
            for shard in self.here():
                shard.topics_deleted(deleted)

    def _deleted(self) -> list[str]:
        """Topics that are no more, or others by now, of those that changed."""
        gone = []
        for name in self._news.take_now():
            if name.namespace == self.topic_name.namespace:
                topic = self._broker.view.topics.get(name)
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
                self._serve(number, self._broker.leads(self.topic_name, number))
            except SeaweedMQError as error:
                log.debug("the coordinator of partition %d begins a little later: %s", number, error)

    def _serve(self, number: int, partition: LocalPartition) -> Shard:
        if self._is_over:
            raise Unavailable("this broker is shutting down: ask for the coordinator again")
        shard = self._shards[number] = self._shard(partition)
        task = self._broker.spawn(self._run(number, shard), f"coordinator {number} of {self.topic_name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return shard

    async def _run(self, number: int, shard: Shard) -> None:
        """One coordinator after another, as long as this broker leads the same segment."""
        while True:
            await shard.run()
            if shard.partition.is_over or self._shards.get(number) is not shard:
                break
            shard = self._shards[number] = self._shard(shard.partition)
        if self._shards.get(number) is shard:
            del self._shards[number]

    def _shard(self, partition: LocalPartition) -> Shard:
        return Shard(
            ShardLog(partition, self._broker.view, frame_bytes_max=self._broker.config.frame_bytes_max),
            limits=self._limits,
            memory=self.memory,
            env=self._broker.env,
            topic_ids=self.topic_ids,
            raise_mark=partial(self._raise_mark, partition),
            snapshot_after_bytes=self._snapshot_after_bytes,
        )

    def _raise_mark(self, partition: LocalPartition, mark: int) -> None:
        """A snapshot begins there: what lies below may go. If that can not be said now, the next one says it."""
        name = f"low watermark of partition {partition.partition} of {self.topic_name}"
        self._broker.spawn(self._raise(partition, mark), name)

    async def _raise(self, partition: LocalPartition, mark: int) -> None:
        raising = RaiseLowWatermark(self.topic_name, {partition.partition: mark}, partition.topic.uid)
        attempts = retrying(
            backoff(self._broker.env.rng, MARK_RETRY_FIRST_S, MARK_RETRY_MOST_S), stop=after_s(MARK_TIMEOUT_S)
        )
        try:
            await attempts(self._broker.api.call, raising)
        except SeaweedMQError as error:
            log.warning("partition %d of %s keeps more than it needs: %s", partition.partition, self.topic_name, error)
