"""The coordinator's end of one member's stream: what is to be said, bounded however slow the member is."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping

from seaweedmq.errors import ProtocolViolation, SeaweedMQError, fresh
from seaweedmq.model.groups import GroupAssignment, GroupCommitted, GroupReply
from seaweedmq.runtime.signal import Signal

COMMITS_IN_FLIGHT_MAX = 16
"""Commits of a stream that are not answered yet; beyond it the stream is not read."""


class MemberSession:
    """One stream. Of assignments only the latest is kept: it says all."""

    def __init__(self, stream: int, member: str, held: Mapping[int, int]) -> None:
        """``held``: segment -> generation, as the member said when it opened the stream."""
        self.stream = stream
        self.member = member
        self._told = set(held.items())
        """Segments and generations in the last assignment that was sent; what was held before there is one. No other
        comes back in a later assignment: what was withdrawn never does in the same generation."""
        self._assignment: GroupAssignment | None = None
        self._answers: deque[GroupCommitted] = deque()
        """At most COMMITS_IN_FLIGHT_MAX."""
        self._unanswered = 0
        self._number = 0
        self._over = False
        self._error: SeaweedMQError | None = None
        self._changed = Signal()

    async def expect(self, number: int) -> None:
        """Wait until one more commit may be taken. ProtocolViolation: its number does not rise."""
        if number <= self._number:
            raise ProtocolViolation(
                f"commit {number} came after {self._number}: number the commits of a stream upwards"
            )
        self._number = number
        while self._unanswered >= COMMITS_IN_FLIGHT_MAX:
            await self._changed.wait()
        self._unanswered += 1

    def say(self, message: GroupReply) -> dict[int, int]:
        """To be sent when the member takes it.

        Returns what the member will never hear of, segment -> generation: it was in an assignment that was not sent and
        is not in this one. Nobody has to wait for its release.
        """
        untold: dict[int, int] = {}
        match message:
            case GroupAssignment():
                before, self._assignment = self._assignment, message
                if before is not None:
                    untold = dict(_ownerships(before) - _ownerships(message) - self._told)
            case GroupCommitted():
                self._answers.append(message)
        self._changed.fire()
        return untold

    def end(self, error: SeaweedMQError | None) -> None:
        """Say what there is to say, and no more. The first end counts."""
        if not self._over:
            self._over, self._error = True, error
        self._changed.fire()

    async def replies(self, reading: "asyncio.Task[None]") -> AsyncGenerator[GroupReply, None]:
        """What is said, as it comes, while ``reading`` takes what the member says; raises what the stream ends with."""
        try:
            async for reply in self._replies():
                yield reply
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()  # a fault in it is no quiet end

    async def _replies(self) -> AsyncGenerator[GroupReply, None]:
        while True:
            if self._answers:
                answer = self._answers.popleft()
                self._unanswered -= 1
                self._changed.fire()
                yield answer
            elif self._assignment is not None:
                assignment, self._assignment = self._assignment, None
                self._told = _ownerships(assignment)
                yield assignment
            elif self._over:
                if self._error is not None:
                    raise fresh(self._error)
                return
            else:
                await self._changed.wait()


def _ownerships(assignment: GroupAssignment) -> set[tuple[int, int]]:
    return {(owned.segment, owned.generation) for owned in assignment.owned}
