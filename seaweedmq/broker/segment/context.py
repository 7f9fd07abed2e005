"""Context shared by all open segments of a broker."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.fsync import SyncRounds
from seaweedmq.broker.segment.replicate import ReplicationContext
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.ports import DirectoryStore, Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """The context of all open segments of one broker incarnation."""

    config: BrokerConfig
    store: DirectoryStore
    budget: MemoryBudget
    producers: ProducerPool
    sync_rounds: SyncRounds
    writer_id: str
    lease_alive: Callable[[], bool]
    """Predicate: whether this broker can prove that it still owns its segments."""
    env: Environment
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Function that runs a coroutine for a segment. An unhandled error stops the broker, so that none is silent."""
    replication: ReplicationContext
    provenance: Callable[[Segment], Sequence[Segment]]
    """Function that returns the segments recorded in a segment's log files: see ``core.lineage.provenance``."""
