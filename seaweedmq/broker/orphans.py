"""Open segments that lost a replica, or lack one, and their replacement."""

import asyncio
import logging

from seaweedmq.broker.changes import Changes
from seaweedmq.broker.complaints import Complaints
from seaweedmq.broker.metadata import Metadata
from seaweedmq.broker.placement import Placement
from seaweedmq.core.sealing import must_move
from seaweedmq.errors import Corrupt, SeaweedMQError
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName

log = logging.getLogger(__name__)

RECOVERIES_AT_ONCE = 8
RETRY_DAMAGED_S = 15.0
"""How soon a segment whose files are damaged is tried again: somebody has to mend them, and reading them costs."""


class Orphans:
    """Finds them in the view and by what replicas say of each other."""

    def __init__(self, *, metadata: Metadata, placement: Placement, changes: Changes) -> None:
        self._metadata = metadata
        self._placement = placement
        self._changes = changes
        self._broken: set[tuple[TopicName, int]] = set()
        """Open segments whose replicas lost each other: nothing is committed there until they are replaced."""
        self._damaged: dict[tuple[TopicName, int], float] = {}
        """Segments whose recovery met damage -> loop time of the next attempt."""
        self._complaints = Complaints(log)

    def add(self, name: TopicName, segment: int) -> None:
        """The replicas of an open segment lost each other."""
        self._broken.add((name, segment))

    async def replace(self) -> bool:
        """Seal the open segments that lost a replica, and open successors. Whether all is done."""
        segments = self._metadata.open_segments()
        self._broken &= {(s.topic, s.id) for s in segments}
        self._placement.forget_old_suspicions()
        live, draining = self._metadata.view.brokers, self._placement.draining
        now = asyncio.get_running_loop().time()
        self._damaged = {key: until for key, until in self._damaged.items() if until > now}
        orphans = [
            s
            for s in segments
            if (must_move(s, live, draining) or (s.topic, s.id) in self._broken)
            and (s.topic, s.id) not in self._damaged
        ]
        # One repair a turn: the others stay readable and writable meanwhile.
        thin = [] if orphans else self._under_replicated(segments)
        limit = asyncio.Semaphore(RECOVERIES_AT_ONCE)
        done = await asyncio.gather(*(self._replace(segment, limit) for segment in [*orphans, *thin[:1]]))
        # Who is suspected no longer may take replicas again, and nothing else will say so.
        return all(done) and not thin and not self._damaged and not self._placement.suspects

    def _under_replicated(self, segments: list[Segment]) -> list[Segment]:
        """Open segments that were opened when brokers were missing, and could have more replicas now."""
        available = len(self._metadata.view.brokers.keys() - self._placement.shunned)
        topics = self._metadata.view.topics
        return [s for s in segments if len(s.replicas) < min(topics[s.topic].replicas, available)]

    async def _replace(self, segment: Segment, limit: asyncio.Semaphore) -> bool:
        async with limit:
            try:
                await self._changes.replace(segment)
            except SeaweedMQError as error:
                if isinstance(error, Corrupt):
                    until = asyncio.get_running_loop().time() + RETRY_DAMAGED_S
                    self._damaged[segment.topic, segment.id] = until
                self._complaints.add(f"replacing {segment}", error)
                return False
        return True
