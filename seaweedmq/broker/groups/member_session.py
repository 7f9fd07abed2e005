"""Session of one group member: replies to its stream, bounded in memory however slow the member is."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Mapping

from seaweedmq.errors import ProtocolViolation, SeaweedMQError, fresh
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted, GroupReply
from seaweedmq.runtime.signal import Signal

COMMITS_IN_FLIGHT_MAX = 16
"""Unanswered commits of a stream; at the limit the stream is not read."""


class MemberSession:
    """A session of one member's stream. It keeps only the latest assignment, which is complete."""

    def __init__(self, stream: int, member: str, held: Mapping[int, int]) -> None:
        """Create the session; ``held`` is the generation of each segment that the member claimed."""
        self.stream = stream
        self.member = member
        self._sent = set(held.items())
        """Segments and generations in the last assignment that was sent; initially the claimed ones.

        A withdrawn segment never returns in the same generation, so none outside it reappears in a later assignment.
        """
        self._assignment: GroupAssignment | None = None
        self._answers: deque[GroupCommitted] = deque()
        """Unsent answers, at most ``COMMITS_IN_FLIGHT_MAX``."""
        self._unanswered = 0
        self._number = 0
        self._over = False
        self._error: SeaweedMQError | None = None
        self._changed = Signal()

    async def expect(self, number: int) -> None:
        """Wait until another commit is allowed; raise ProtocolViolation if its number does not rise."""
        if number <= self._number:
            raise ProtocolViolation(f"commit {number} follows {self._number}: number the commits of a stream upwards")
        self._number = number
        while self._unanswered >= COMMITS_IN_FLIGHT_MAX:
            await self._changed.wait()
        self._unanswered += 1

    def enqueue(self, message: GroupReply) -> dict[int, int]:
        """Queue a message for the member.

        Returns the generation of each segment that a replaced, unsent assignment had and this one lacks: its release
        need not be awaited.
        """
        unsent: dict[int, int] = {}
        match message:
            case GroupAssignment():
                before, self._assignment = self._assignment, message
                if before is not None:
                    unsent = dict(_ownerships(before) - _ownerships(message) - self._sent)
            case GroupCommitted():
                self._answers.append(message)
        self._changed.fire()
        return unsent

    def end(self, error: SeaweedMQError | None) -> None:
        """End the stream after the queued messages. The first end counts."""
        if not self._over:
            self._over, self._error = True, error
        self._changed.fire()

    async def replies(self, reading: "asyncio.Task[None]") -> AsyncGenerator[GroupReply, None]:
        """Yield replies while ``reading`` handles the member's requests; raise the error that ends the stream."""
        try:
            async for reply in self._replies():
                yield reply
        finally:
            reading.cancel()
            await asyncio.wait({reading})
        if not reading.cancelled():
            reading.result()  # a failure of the reader must not pass for a normal end

    async def _replies(self) -> AsyncGenerator[GroupReply, None]:
        while True:
            if self._answers:
                answer = self._answers.popleft()
                self._unanswered -= 1
                self._changed.fire()
                yield answer
            elif self._assignment is not None:
                assignment, self._assignment = self._assignment, None
                self._sent = _ownerships(assignment)
                yield assignment
            elif self._over:
                if self._error is not None:
                    raise fresh(self._error)
                return
            else:
                await self._changed.wait()


def _ownerships(assignment: GroupAssignment) -> set[tuple[int, int]]:
    return {(owned.segment, owned.generation) for owned in assignment.owned}
