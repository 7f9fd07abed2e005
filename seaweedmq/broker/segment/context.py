"""Contexts shared by all open segments of a broker, and by their replication."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any
from weakref import WeakValueDictionary

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.fsync import SyncRounds
from seaweedmq.broker.segment.suspicions import Suspicions
from seaweedmq.core.segment.follower_progress import FollowerProgress
from seaweedmq.core.segment.producer_limits import ProducerPool
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.ports import BrokerApi, Environment, SegmentStore
from seaweedmq.runtime.grouped_logger import GroupedLogger

log = logging.getLogger(__name__)


class ReplicationContext:
    """The context of the replicate streams of all segments of one broker, over all its incarnations."""

    def __init__(
        self, dial: Callable[[str], BrokerApi], memory: MemoryBudget, timeout_s: float, suspicions: Suspicions
    ) -> None:
        """Create the context.

        Args:
            dial: Returns another broker by id. It raises Unavailable if that broker is not registered.
            memory: Memory budget of messages on their way to followers.
            timeout_s: Longest time in seconds that a follower with frames to take may make no progress.
            suspicions: Reports to the leader.
        """
        self.dial = dial
        self.memory = memory
        self.timeout_s = timeout_s
        self.suspicions = suspicions
        self.lost_followers = GroupedLogger(log)
        """Grouped log of lost followers: thousands of segments lose a dead broker at the same time."""
        self._progress: WeakValueDictionary[str, FollowerProgress] = WeakValueDictionary()

    def progress_of(self, follower: str) -> FollowerProgress:
        """Return a follower's progress over all segments, by broker id."""
        return self._progress.setdefault(follower, FollowerProgress())


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentContext:
    """The context of all open segments of one broker incarnation."""

    config: BrokerConfig
    store: SegmentStore
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
