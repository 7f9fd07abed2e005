"""A member's share of the topic: begin what is assigned, let go of what is withdrawn, commit what is dealt with."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Protocol

from seaweedmq.client.config import ClientConfig
from seaweedmq.client.group.assigned import Owned
from seaweedmq.client.group.handout import Handout
from seaweedmq.client.group.member import Member, ended
from seaweedmq.client.group.unacked import Unsettled
from seaweedmq.errors import Closed, SeaweedMQError, fresh
from seaweedmq.model.groups import GroupAssignment, GroupCommitted, Ownership
from seaweedmq.runtime.notice import Notice

log = logging.getLogger(__name__)


class SharesOwner(Protocol):
    """The subscriber, as its shares see it."""

    def start_reading(self, owned: Owned) -> None: ...

    def stop_reading(self, owned: Owned) -> None: ...

    def fail(self, error: SeaweedMQError) -> None:
        """The membership is over."""


class Shares:
    """Between the coordinator's stream and the ownerships.

    A segment that is withdrawn is handed out no more at once; what is out is waited for; then its position is
    committed for the last time, and only when that was answered it is released.
    """

    def __init__(
        self,
        owner: SharesOwner,
        config: ClientConfig,
        what: str,
        topic: str,
        owned: dict[int, Owned],
        unsettled: Unsettled,
        handout: Handout,
        attention: Notice,
    ) -> None:
        self._owner = owner
        self._config = config
        self._what = what
        self._topic = topic
        self.owned = owned
        self._unsettled = unsettled
        self._handout = handout
        self._attention = attention
        self._member: Member | None = None
        self._task: asyncio.Task[None] | None = None
        self._joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._assigned: dict[int, Ownership] = {}
        """The newest assignment."""
        self._resting = True
        """Nothing changes without notice."""
        self._commit_at = 0.0
        self._is_over = False

    async def join(self, member: Member, timeout_s: float) -> None:
        """Become a member, and be told what to read.

        Raises:
            TimeoutError: nobody answered in time.
            SeaweedMQError: the coordinator refused.
        """
        self._member = member
        self._task = asyncio.create_task(member.run(), name=f"membership in {self._what}")
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
        while True:
            with self._unsettled.lock:
                self._resting = self._is_over or not any(owned.is_live for owned in self.owned.values())
            wait_s = None if self._resting else max(0.0, self._commit_at - loop.time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._attention.wait()
            self._attention.clear()
            self._look_after()

    def on_rows(self) -> None:
        """Rows arrived: positions may change from here on."""
        if self._resting:
            self._attention.set()

    async def commit(self, timeout_s: float) -> None:
        """Return when what was acknowledged is kept. Raises as ``Member.settled``."""
        if self._member is None:
            raise AssertionError("join() comes first")
        self._commit_at = 0.0
        self._look_after()
        await self._member.settled(timeout_s)

    async def leave(self, timeout_s: float) -> None:
        """Commit what was acknowledged, and end the membership."""
        if self._task is not None and self._member is not None:
            if not self._is_over and self._joined.done():
                self._commit_at = 0.0
                self._look_after()
                self._member.leave()
                await ended(self._task, timeout_s)
                if not self._member.commits.is_empty:
                    log.warning("%s: the last commit was not answered: its records are delivered again", self._what)
            self._task.cancel()
            await asyncio.wait({self._task})
        self._joined.cancel()
        with self._unsettled.lock:
            for owned in self.owned.values():
                owned.watched = False

    # --- for the membership ----------------------------------------------------------------------------------------

    def held(self) -> Mapping[int, int]:
        return {owned.segment: owned.generation for owned in self.owned.values()}

    def on_assignment(self, assignment: GroupAssignment) -> None:
        self._assigned = {given.segment: given for given in assignment.owned}
        for owned in list(self.owned.values()):
            given = self._assigned.get(owned.segment)
            if given is None or given.generation != owned.generation:
                self._revoke(owned)
        self._begin_assigned()
        self._handout.look_again()  # it may have waited for this
        if not self._joined.done():
            self._joined.set_result(None)

    def on_committed(self, committed: GroupCommitted) -> None:
        for segment, why in committed.refused.items():
            owned = self.owned.get(segment)
            if owned is not None and not owned.is_refused:
                log.warning("%s: a commit was refused: %s", self._what, why)
                owned.is_refused = True
                self._revoke(owned)
        self._attention.set()

    def on_failed(self, error: SeaweedMQError) -> None:
        if not self._joined.done():
            self._joined.set_exception(fresh(error))
        self.end()
        self._owner.fail(error)

    def end(self) -> None:
        """Read no more; nothing can be committed, either."""
        self._is_over = True
        for owned in list(self.owned.values()):
            self._revoke(owned)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _begin_assigned(self) -> None:
        """Read what is new, unless what came before it of the same segment is still out."""
        if self._is_over:
            return
        for segment, given in self._assigned.items():
            if segment not in self.owned:
                owned = Owned(self._handout, self._topic, given, self._handout.one_at_a_time)
                with self._unsettled.lock:
                    self.owned[segment] = owned
                self._owner.start_reading(owned)
        self._attention.set()

    def _revoke(self, owned: Owned) -> None:
        if not owned.revoked:
            self._handout.revoke(owned)
            self._owner.stop_reading(owned)
            self._attention.set()

    def _look_after(self) -> None:
        if self._member is None or self._is_over:
            return
        commits = self._member.commits
        now = asyncio.get_running_loop().time()
        is_time = now >= self._commit_at
        if is_time:
            self._commit_at = now + self._config.group_commit_interval_s
        drained = []
        with self._unsettled.lock:
            for owned in self.owned.values():
                urgent = owned.revoked or owned.is_read
                owned.watched = urgent or self._unsettled.blocks
                # Acknowledgements take no lock: first that nothing is out, then the position, which is the last one.
                is_over = owned.revoked and not owned.ledger.is_out()
                if (is_time or urgent) and not owned.is_refused:
                    position = owned.position()
                    if position is not None:
                        commits.want(position)
                if is_over and not commits.is_pending(owned.segment):
                    drained.append(owned)
        for owned in drained:
            self._release(self._member, owned)
        self._member.wake()
        if self._unsettled.blocks:
            self._handout.look_again()

    def _release(self, member: Member, owned: Owned) -> None:
        with self._unsettled.lock:
            owned.watched = False
            del self.owned[owned.segment]
        given = self._assigned.get(owned.segment)
        if given is not None and given.generation == owned.generation:  # refused before the assignment said so
            del self._assigned[owned.segment]
        member.commits.forget(owned.segment)
        member.release(owned.segment, owned.generation)
        self._begin_assigned()
