"""Context shared by all open segments of a broker."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.fsync import SyncRequests
from seaweedmq.broker.segment.replicate import ReplicationContext
from seaweedmq.broker.segment.sink import SegmentStorage
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import Environment, SegmentStore


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """The context of all open segments of one broker incarnation."""

    config: BrokerConfig
    store: SegmentStore
    budget: MemoryBudget
    producers: ProducerPool
    storage: SegmentStorage
    """Storage of the records: log files of ``store``, or bundles."""
    sync_rounds: SyncRequests
    lease_alive: Callable[[], bool]
    """Predicate: whether this broker can prove that it still owns its segments."""
    env: Environment
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Function that runs a coroutine for a segment. An unhandled error stops the broker, so that none is silent."""
    replication: ReplicationContext
