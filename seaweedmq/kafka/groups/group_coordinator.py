"""Coordinator of the groups of one partition, which also drops the committed offsets of deleted topics."""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final

from seaweedmq.codec.kafka.group_records import decode_record, encode_record
from seaweedmq.core.kafka.groups.classic_events import CoordinatorLimits, ShardEvent, Tick, TopicsDeleted
from seaweedmq.core.kafka.groups.shard_state import GroupShard
from seaweedmq.core.kafka.groups.state_memory import StateMemory
from seaweedmq.errors import SeaweedMQError
from seaweedmq.kafka.metadata.topic_ids import TopicIds
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import OffsetRecord
from seaweedmq.ports import Environment
from seaweedmq.runtime.retrying import backoff, retrying
from seaweedmq.shards.machine import MachineKind
from seaweedmq.shards.shard import LOAD_RETRY_S_FIRST, LOAD_RETRY_S_MAX, Shard
from seaweedmq.shards.shard_log import ShardLog

log = logging.getLogger(__name__)

NOTHING: Final = OffsetRecord("", "", -1, None)
"""A record without effect: it deletes an offset that never existed."""


class GroupCoordinator(Shard[GroupShard, ShardEvent]):
    """The coordinator of the groups of one partition, while this broker leads it."""

    def __init__(
        self,
        log_: ShardLog,
        *,
        limits: CoordinatorLimits,
        memory: StateMemory,
        env: Environment,
        topic_ids: TopicIds,
        raise_mark: Callable[[int], None],
        snapshot_after_bytes: int,
    ) -> None:
        kind: MachineKind[GroupShard, ShardEvent] = MachineKind(
            name="group",
            new=partial(GroupShard, limits, memory),
            tick=Tick(),
            encode=encode_record,
            decode=decode_record,
            nothing=NOTHING,
            loading_error=partial(KafkaError, Code.COORDINATOR_LOAD_IN_PROGRESS),
        )
        super().__init__(log_, kind, env=env, raise_mark=raise_mark, snapshot_after_bytes=snapshot_after_bytes)
        self._memory = memory
        self._topic_ids = topic_ids
        self._maybe_deleted: set[str] = set()
        """Topics that may be deleted; etcd decides whether their offsets are dropped."""
        self._is_doubtful = asyncio.Event()
        self._checking: asyncio.Task[None] | None = None

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Drop the offsets of deleted or recreated topics, once etcd confirms the deletion."""
        self._maybe_deleted.update(topics)
        if self._maybe_deleted:
            self._is_doubtful.set()

    def _take(self, event: ShardEvent) -> None:
        super()._take(event)
        if self._memory.take_shortage():
            log.warning(
                "Kafka groups rejected: groups of this broker hold %d of %d bytes: delete groups, subscribe members to "
                "fewer topics, add brokers, or raise kafka_groups_bytes_max and memory_bytes_max",
                self._memory.used,
                self._memory.bytes_max,
            )

    def _begin(self) -> None:
        super()._begin()
        self.topics_deleted(topic for topic, known in self._state.topic_ids() if known != self._topic_ids.known(topic))
        self._checking = self._loop.create_task(self._drop_deleted())

    def _end(self) -> None:
        super()._end()
        if self._checking is not None:
            self._checking.cancel()  # not awaited: the next coordinator must start at once

    async def _drop_deleted(self) -> None:
        """Drop offsets of deleted topics, including those deleted while this partition had no coordinator."""
        while True:
            await self._is_doubtful.wait()
            self._is_doubtful.clear()
            topics, self._maybe_deleted = self._maybe_deleted, set()
            for topic in sorted(topics):
                asking = retrying(backoff(self._env.rng, LOAD_RETRY_S_FIRST, LOAD_RETRY_S_MAX), on=SeaweedMQError)
                topic_id: bytes | None = await asking(self._topic_ids.current, topic)
                if not self.is_active:
                    return
                self._take(TopicsDeleted({topic: topic_id}))
