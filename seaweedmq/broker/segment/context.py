"""What all open segments of a broker share."""

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
    """Of one term of the broker."""

    config: BrokerConfig
    store: SegmentStore
    budget: MemoryBudget
    producers: ProducerPool
    relaying: MemoryBudget
    """For messages on their way to followers."""
    sync_rounds: SyncRounds
    writer_id: str
    lease_alive: Callable[[], bool]
    """Whether this broker surely still owns its segments."""
    env: Environment
    spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]
    """Run something for a segment; an error that it does not handle ends the broker, which is better than silence."""
    dial: Callable[[str], BrokerApi]
    """Another broker by id; Unavailable if it is gone."""
    progress_of: Callable[[str], FollowerProgress]
    """Progress of a follower, by broker id, over all segments."""
    suspicions: Suspicions
    lost_followers: GroupedLogger
    """Log of lost followers: a dead broker is lost to thousands of segments at a time."""
    provenance: Callable[[Segment], Sequence[Segment]]
    """The segments that a log file of a segment records: see ``core.lineage.provenance``."""
