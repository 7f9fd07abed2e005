"""A membership: carry out what is assigned, commit what is dealt with, and let go of what is withdrawn."""

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

    def start_reading(self, assigned: AssignedSegment) -> None: ...

    def stop_reading(self, assigned: AssignedSegment) -> None: ...

    def begun_at(self, segment: int) -> int | None:
        """The offset at which reading of a segment began; None: that is not known, or the segment is not read."""

    def fail(self, error: SeaweedMQError) -> None:
        """The membership is over."""


class GroupMembership:
    """Between the stream to the coordinator and the dispatcher: what is decided, ``core.member.holdings`` decides."""

    def __init__(self, owner: GroupMembershipOwner, dispatcher: Dispatcher, config: ClientConfig, what: str) -> None:
        """``what``: the group, for people."""
        self._owner = owner
        self._dispatcher = dispatcher
        self._config = config
        self._what = what
        self._stream: MemberStream | None = None
        self._task: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_resting = True
        """Nothing changes without notice."""
        self._commit_at = 0.0

    async def join(self, stream: MemberStream, timeout_s: float) -> None:
        """Become a member, and be told what to read.

        Raises:
            TimeoutError: nobody answered in time.
            SeaweedMQError: the coordinator refused.
        """
        self._stream = stream
        self._task = asyncio.create_task(stream.run(), name=f"membership in {self._what}")
        self._task.add_done_callback(self._on_task_done)
        async with asyncio.timeout(timeout_s):
            await self._joined

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug: nothing more would be assigned or committed, so whoever waits is told.
            broken = Closed(f"the membership in {self._what} broke down: {error!r}; open another and report this")
            broken.__cause__ = error
            self.on_failed(broken)

    async def keep(self) -> None:
        """Commit now and then while there is anything to commit, and at once what others wait for. Cancel to stop."""
        loop = asyncio.get_running_loop()
        attention = self._dispatcher.attention
        while True:
            self._is_resting = self._dispatcher.is_resting
            wait_s = None if self._is_resting else max(0.0, self._commit_at - loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await attention.wait()
            attention.clear()
            self._look_after()

    def on_rows(self) -> None:
        """Rows arrived: positions may change from here on."""
        if self._is_resting:
            self._dispatcher.attention.set()

    async def commit(self, timeout_s: float) -> None:
        """Return when what was acknowledged is kept. Raises as ``MemberStream.committed``."""
        if self._stream is None:
            raise AssertionError("join() comes first")
        self._commit_at = 0.0
        self._look_after()
        await self._stream.committed(timeout_s)

    async def leave(self, timeout_s: float) -> None:
        """Commit what was acknowledged, and end the membership."""
        if self._task is not None and self._stream is not None:
            try:
                if not self._dispatcher.is_over and self._joined.done():
                    self._commit_at = 0.0
                    self._look_after()
                    self._stream.leave()
                    await ended(self._task, timeout_s)
                    if not self._dispatcher.commits.is_empty:
                        log.warning("%s: the last commit was not answered: its records are delivered again", self._what)
            finally:
                self._task.cancel()
                await asyncio.wait({self._task})
        self._joined.cancel()

    def end(self) -> None:
        """Read no more; nothing can be committed, either."""
        self._carry_out(self._dispatcher.end())

    # --- for the stream ---------------------------------------------------------------------------------------------

    def held(self) -> Mapping[int, int]:
        return self._dispatcher.held

    def on_assignment(self, assignment: GroupAssignment) -> None:
        self._carry_out(self._dispatcher.assign(assignment))
        if not self._joined.done():
            self._joined.set_result(None)

    def on_committed(self, committed: GroupCommitted) -> None:
        for why in committed.refused.values():
            log.warning("%s: a commit was refused: %s", self._what, why)
        self._carry_out(self._dispatcher.answered(committed))

    def on_failed(self, error: SeaweedMQError) -> None:
        if not self._joined.done():
            self._joined.set_exception(fresh(error))
        self.end()
        self._owner.fail(error)

    # --- inside -----------------------------------------------------------------------------------------------------

    def _look_after(self) -> None:
        if self._stream is None or self._dispatcher.is_over:
            return
        now = asyncio.get_running_loop().time()
        is_time = now >= self._commit_at
        if is_time:
            self._commit_at = now + self._config.group_commit_interval_s
        self._carry_out(self._dispatcher.look_after(is_time, self._owner.begun_at))
        self._stream.wake()

    def _carry_out(self, instructions: Instructions[FetchedRows, Message]) -> None:
        for assigned in instructions.stop:
            self._owner.stop_reading(assigned)
        if self._stream is not None and instructions.release:
            self._stream.release(instructions.release)
        for assigned in instructions.begin:
            self._owner.start_reading(assigned)
