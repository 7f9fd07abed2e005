"""A membership: reads assigned segments, commits acknowledged offsets, and releases withdrawn segments."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Protocol

from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.dispatcher import Dispatcher
from seaweedmq.client.group.member_stream import MemberStream, ended
from seaweedmq.client.group.origin import AssignedSegment
from seaweedmq.client.subscribe.messages import FetchedRows, Message
from seaweedmq.core.member.holdings import Instructions
from seaweedmq.errors import Closed, SeaweedMQError, fresh
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted

log = logging.getLogger(__name__)


class GroupMembershipOwner(Protocol):
    """The subscriber, as its membership sees it."""

    def start_reading(self, assigned: AssignedSegment) -> None:
        """Begin to read a segment."""

    def stop_reading(self, assigned: AssignedSegment) -> None:
        """Stop reading a segment."""

    def begun_at(self, segment: int) -> int | None:
        """Return the offset at which reading of a segment began; None if unknown, or if it is not read."""

    def fail(self, error: SeaweedMQError) -> None:
        """Handle the end of the membership."""


class GroupMembership:
    """The link between the stream to the coordinator and the dispatcher. ``core.member.holdings`` decides."""

    def __init__(self, owner: GroupMembershipOwner, dispatcher: Dispatcher, config: ClientConfig, what: str) -> None:
        """Make a membership that has not joined; ``what`` is the group, for messages."""
        self._owner = owner
        self._dispatcher = dispatcher
        self._config = config
        self._what = what
        self._stream: MemberStream | None = None
        self._task: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_resting = True
        """Whether no commit can become due without a notice."""
        self._commit_at = 0.0

    async def join(self, stream: MemberStream, timeout_s: float) -> None:
        """Join the group, and return after the first assignment; TimeoutError if there is none within ``timeout_s``."""
        self._stream = stream
        self._task = asyncio.create_task(stream.run(), name=f"membership in {self._what}")
        self._task.add_done_callback(self._on_task_done)
        async with asyncio.timeout(timeout_s):
            await self._joined

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would be assigned or committed, so every waiter gets the error.
            broken = Closed(f"the membership in {self._what} failed: {error!r}: open another one and report this")
            broken.__cause__ = error
            self.on_failed(broken)

    async def keep(self) -> None:
        """Commit every ``group_commit_interval_s``, and at once offsets that others wait for. Cancel to stop."""
        loop = asyncio.get_running_loop()
        attention = self._dispatcher.attention
        while True:
            self._is_resting = self._dispatcher.is_resting
            wait_s = None if self._is_resting else max(0.0, self._commit_at - loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await attention.wait()
            attention.clear()
            self._commit_and_release()

    def on_rows(self) -> None:
        """Handle the arrival of rows: positions may change from now on."""
        if self._is_resting:
            self._dispatcher.attention.set()

    async def commit(self, timeout_s: float) -> None:
        """Commit acknowledged offsets, and return when they are stored; raises as ``MemberStream.committed``."""
        assert self._stream is not None, "join() must be called first"
        self._commit_at = 0.0
        self._commit_and_release()
        await self._stream.committed(timeout_s)

    async def leave(self, timeout_s: float) -> None:
        """Commit acknowledged offsets, and end the membership."""
        if self._task is not None and self._stream is not None:
            try:
                if not self._dispatcher.is_over and self._joined.done():
                    self._commit_at = 0.0
                    self._commit_and_release()
                    self._stream.leave()
                    await ended(self._task, timeout_s)
                    if not self._dispatcher.commits.is_empty:
                        log.warning("last commit not answered: %s: its records are redelivered", self._what)
            finally:
                self._task.cancel()
                await asyncio.wait({self._task})
        self._joined.cancel()

    def end(self) -> None:
        """End reading and committing."""
        self._carry_out(self._dispatcher.end())

    def held(self) -> Mapping[int, int]:
        """Return segment -> generation, of segments that are read or whose last commit is open."""
        return self._dispatcher.held

    def on_assignment(self, assignment: GroupAssignment) -> None:
        """Carry out an assignment. The first one completes :meth:`join`."""
        self._carry_out(self._dispatcher.assign(assignment))
        if not self._joined.done():
            self._joined.set_result(None)

    def on_committed(self, committed: GroupCommitted) -> None:
        """Handle the reply to a commit."""
        for why in committed.refused.values():
            log.warning("commit rejected: %s: %s", self._what, why)
        self._carry_out(self._dispatcher.answered(committed))

    def on_failed(self, error: SeaweedMQError) -> None:
        """End the membership with an error, which the subscriber raises."""
        if not self._joined.done():
            self._joined.set_exception(fresh(error))
        self.end()
        self._owner.fail(error)

    def _commit_and_release(self) -> None:
        if self._stream is None or self._dispatcher.is_over:
            return
        now = asyncio.get_running_loop().time()
        is_commit_due = now >= self._commit_at
        if is_commit_due:
            self._commit_at = now + self._config.group_commit_interval_s
        self._carry_out(self._dispatcher.commit_and_release(is_commit_due, self._owner.begun_at))
        self._stream.wake()

    def _carry_out(self, instructions: Instructions[FetchedRows, Message]) -> None:
        for assigned in instructions.stop:
            self._owner.stop_reading(assigned)
        if self._stream is not None and instructions.release:
            self._stream.release(instructions.release)
        for assigned in instructions.begin:
            self._owner.start_reading(assigned)
