"""What replicas of this broker suspect of other brokers, on its way to the leader.

When a broker dies, every segment that it had a replica of suspects it, within a moment: one call tells of all of them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, NamedTuple

from seaweedmq.model.messages.calls import SUSPICIONS_AT_ONCE_MAX, ReportSuspicions
from seaweedmq.model.messages.replication import SegmentRef

GATHER_S = 0.002
"""How long the first one waits for others."""


class _What(NamedTuple):
    suspect: str
    reason: str


class Suspicions:
    """Tells the leader, until it has heard. Nothing is committed meanwhile in the segments that it is about."""

    def __init__(
        self,
        report: Callable[[ReportSuspicions], Awaitable[None]],
        spawn: Callable[[Coroutine[Any, Any, None], str], object],
    ) -> None:
        """
        Args:
            report: returns once the leader has heard.
            spawn: begins a task that has an end.
        """
        self._report = report
        self._spawn = spawn
        self._gathered: dict[_What, dict[SegmentRef, None]] = {}
        self._under_way: set[SegmentRef] = set()

    def tell(self, ref: SegmentRef, suspect: str, reason: str) -> None:
        """See ``model.calls.ReportSuspicions``. Waits for nothing; what is being told is not told twice."""
        if ref in self._under_way:
            return
        self._under_way.add(ref)
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._send)
        self._gathered.setdefault(_What(suspect, reason), {})[ref] = None

    def _send(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for what, found in gathered.items():
            refs = tuple(found)
            for at in range(0, len(refs), SUSPICIONS_AT_ONCE_MAX):
                some = refs[at : at + SUSPICIONS_AT_ONCE_MAX]
                suspicions = ReportSuspicions(refs=some, suspect=what.suspect, reason=what.reason)
                self._spawn(self._tell(suspicions), f"suspect {what.suspect}")

    async def _tell(self, suspicions: ReportSuspicions) -> None:
        try:
            await self._report(suspicions)
        finally:
            self._under_way.difference_update(suspicions.refs)
