"""Reports to the leader about brokers that this broker's replicas suspect of having failed.

When a broker dies, all segments with a replica on it suspect it within milliseconds. One call reports all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from seaweedmq.model.messages.calls import SUSPICIONS_AT_ONCE_MAX, ReportSuspicions
from seaweedmq.model.messages.replication import SegmentRef

GATHER_S = 0.002
"""Time in seconds that the first suspicion waits for others."""


class _Suspicion(NamedTuple):
    suspect: str
    reason: str


class Suspicions:
    """A reporter of suspicions. Until the leader has acted, the segments concerned commit nothing."""

    def __init__(
        self,
        report: Callable[[ReportSuspicions], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        """Prepare an empty reporter; ``report`` returns once a leader has received a report."""
        self._report = report
        self._spawn = spawn
        self._gathered: dict[_Suspicion, dict[SegmentRef, None]] = {}
        self._under_way: set[SegmentRef] = set()

    def add(self, ref: SegmentRef, suspect: str, reason: str) -> None:
        """Report in the background that the segment suspects a broker, unless a report of the segment is under way."""
        if ref in self._under_way:
            return
        self._under_way.add(ref)
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._send)
        self._gathered.setdefault(_Suspicion(suspect, reason), {})[ref] = None

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for what, found in gathered.items():
            refs = tuple(found)
            for at in range(0, len(refs), SUSPICIONS_AT_ONCE_MAX):
                some = refs[at : at + SUSPICIONS_AT_ONCE_MAX]
                suspicions = ReportSuspicions(refs=some, suspect=what.suspect, reason=what.reason)
                self._spawn(self._send_report(suspicions), f"suspect {what.suspect}")

    async def _send_report(self, suspicions: ReportSuspicions) -> None:
        try:
            await self._report(suspicions)
        finally:
            self._under_way.difference_update(suspicions.refs)
