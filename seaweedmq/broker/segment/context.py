"""Context shared by all open segments of a broker."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.fsync import SyncRounds
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.core.segment.follower_progress import FollowerProgress
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.ports import BrokerApi, Environment, SegmentStore
from seaweedmq.runtime.grouped_logger import GroupedLogger


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """The context of all open segments of one broker incarnation."""

    config: BrokerConfig
    store: SegmentStore
    budget: MemoryBudget
    producers: ProducerPool
    relaying: MemoryBudget
    """Memory budget of messages on their way to followers."""
    sync_rounds: SyncRounds
    writer_id: str
    lease_alive: Callable[[], bool]
    """Predicate: whether this broker can prove that it still owns its segments."""
    env: Environment
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Function that runs a coroutine for a segment. An unhandled error stops the broker, so that none is silent."""
    dial: Callable[[str], BrokerApi]
    """Function that returns another broker by id. It raises Unavailable if that broker is not registered."""
    progress_of: Callable[[str], FollowerProgress]
    """Function that returns a follower's progress over all segments, by broker id."""
    suspicions: Suspicions
    lost_followers: GroupedLogger
    """Grouped log of lost followers: thousands of segments lose a dead broker at the same time."""
    provenance: Callable[[Segment], Sequence[Segment]]
    """Function that returns the segments recorded in a segment's log files: see ``core.lineage.provenance``."""
