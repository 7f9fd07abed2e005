"""The leader's writer of leftovers: what brokers that are gone left in bundles becomes log objects.

A segment whose replicas are all gone gets its log objects when it is sealed. One that a follower continued is sealed
sooner, while its primary's lease may still live. The frames that the primary had flushed then stay in its bundles until
this writer runs; readers wait meanwhile. Afterwards only the fence is left of the sequence.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from seaweedmq.broker.bundles.ended_sequences import EndedSequences
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

RETRY_S = 1.0


class LeftoverWriter:
    """The leader's duty for all brokers without a registration whose bundles are in the object store."""

    def __init__(
        self, view: ClusterView, ended: EndedSequences, await_expired_leases: Callable[[], Awaitable[None]]
    ) -> None:
        """Create the writer; ``await_expired_leases`` is that of ``Sealer``."""
        self._view = view
        self._ended = ended
        self._await_expired_leases = await_expired_leases
        self._failures_log = OnceLogger(log)

    async def run(self) -> None:
        """Write leftovers until cancelled: those of all brokers at first, then of each that leaves."""
        known: set[str] | None = None
        pending: set[str] = set()
        while True:
            seen = self._view.changes
            brokers = set(self._view.brokers)
            try:
                if known is None or known - brokers:
                    pending |= await self._ended.brokers_with_bundles()
                    known = brokers
                known |= brokers
                for broker in sorted(pending - brokers):
                    if await self._write(broker):
                        pending.discard(broker)
                pending -= brokers
            except SeaweedMQError as error:
                known = None
                self._failures_log.add("writing of leftovers", error)
                await asyncio.sleep(RETRY_S)
                continue
            await self._view.wait_change(seen)

    async def _write(self, broker: str) -> bool:
        """Write the leftovers of one broker; return False while one of its segments is open."""
        if broker not in self._view.left:
            await self._await_expired_leases()
        for _, segment in self._segments_of(broker):
            if segment.is_open:
                return False
        for topic, segment in self._segments_of(broker):
            assert segment.end_offset is not None
            if await self._ended.has(broker, topic, segment):
                await self._ended.write_logs(topic, segment, (broker,), segment.end_offset)
        await self._ended.delete(broker)
        log.info("leftovers written: broker %s", broker)
        return True

    def _segments_of(self, broker: str) -> list[tuple[Topic, Segment]]:
        return [
            (topic, segment)
            for name, topic in self._view.topics.items()
            for segment in self._view.segments_of(name).values()
            if broker in segment.replicas
        ]
