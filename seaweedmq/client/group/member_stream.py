"""A member's stream to its group's coordinator, over any broker: join, assignments, commits, releases, leave.

The stream is the heartbeat. gRPC keeps it alive below Python, so a handler that computes for minutes does not lose the
membership. After a break the next stream continues under the same incarnation and sends unanswered requests again.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Protocol

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.client.retry import retrying
from seaweedmq.core.member.commits import CommitQueue
from seaweedmq.errors import DeadlineExceeded, SeaweedMQError, StaleMetadata, Unavailable, fresh
from seaweedmq.model.messages import groups
from seaweedmq.runtime.retrying import is_retryable

STEADY_S = 1.0
"""Duration above which a stream does not count as a failed attempt: the next one is opened without a pause."""


class MemberStreamOwner(Protocol):
    """The membership, as its stream sees it."""

    def held(self) -> Mapping[int, int]:
        """Return segment -> generation, of segments that are read or whose last commit is open."""

    def on_assignment(self, assignment: groups.GroupAssignment) -> None:
        """Handle an assignment."""

    def on_committed(self, committed: groups.GroupCommitted) -> None:
        """Handle the reply to a commit."""

    def on_failed(self, error: SeaweedMQError) -> None:
        """Handle the end of the membership: fenced, or the coordinator was unreachable for too long."""


class MemberStream:
    """The stream of one membership, reopened after breaks."""

    def __init__(
        self,
        cluster: Cluster,
        opening: groups.GroupOpen,
        owner: MemberStreamOwner,
        commits: CommitQueue,
        assignment_lease: AssignmentLease,
    ) -> None:
        """Make a stream that is not open; :meth:`wake` sends new ``commits``."""
        self._cluster = cluster
        self._assignment_lease = assignment_lease
        self._opening = opening
        self._owner = owner
        self._commits = commits
        self._released: dict[int, int] = {}
        self._leaving = False
        self._work = asyncio.Event()
        self._answered = asyncio.Event()
        self._broker_stream: BrokerStream[groups.GroupReply] | None = None
        self._reached_at = 0.0
        self._failed: SeaweedMQError | None = None

    def wake(self) -> None:
        """Send new entries of ``commits``."""
        self._work.set()

    def release(self, segments: Mapping[int, int]) -> None:
        """Report released segments (id -> generation). Requires that their last commits were answered."""
        self._released |= segments
        self._work.set()

    async def run(self) -> None:
        """Run until :meth:`leave`, or an error, which goes to the owner. Cancel to stop."""
        loop = asyncio.get_running_loop()
        config = self._cluster.config
        self._reached_at = loop.time()
        try:
            while not self._leaving:
                async for attempt in retrying(
                    config,
                    self._cluster.env.rng,
                    lambda: self._leaving or loop.time() > self._reached_at + config.read_retry_timeout_s,
                ):
                    with attempt:
                        await self._session()
        except SeaweedMQError as error:
            if not self._leaving:
                self._fail(error)

    async def committed(self, timeout_s: float) -> None:
        """Return when all ``commits`` were answered; DeadlineExceeded if they are still retried after ``timeout_s``."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._commits.is_empty:
                    if self._failed is not None:
                        raise fresh(self._failed)
                    self._answered.clear()
                    self._work.set()
                    await self._answered.wait()
        except TimeoutError:
            raise DeadlineExceeded(
                f"the coordinator of {self._what()} did not take a commit within {timeout_s:g} s: it is retried"
            ) from None

    def leave(self) -> None:
        """Leave the group once ``commits`` are answered, and end."""
        self._leaving = True
        self._work.set()

    def _what(self) -> str:
        return f"group {self._opening.group} of {self._opening.topic}"

    def _fail(self, error: SeaweedMQError) -> None:
        """End the membership with an error."""
        self._failed = error
        self._answered.set()
        self._owner.on_failed(error)

    async def _session(self) -> None:
        """Run one stream. Return after a leave, or after a break if it lasted ``STEADY_S``; raise if it broke early."""
        loop = asyncio.get_running_loop()
        address = self._cluster.addresses()[0]
        began = loop.time()
        try:
            await self._stream(address)
        except SeaweedMQError as error:
            if not (is_retryable(error) and loop.time() > began + STEADY_S):
                raise
        finally:
            self._commits.lost()

    async def _stream(self, address: str) -> None:
        loop = asyncio.get_running_loop()
        work = self._work = asyncio.Event()
        work.set()
        joined = False
        beating: asyncio.Task[None] | None = None
        opened_at = self._assignment_lease.clock()
        try:
            async with broker_stream(
                self._cluster, address, lambda api: api.join_group(self._requests(work)), self._what()
            ) as self._broker_stream:
                async for reply in self._broker_stream.replies:
                    joined = True
                    if isinstance(reply, groups.GroupAssignment):
                        self._owner.on_assignment(reply)
                        if beating is None:  # Only now: lost segments are withdrawn first.
                            self._assignment_lease.opened(opened_at, reply)
                            beating = asyncio.create_task(self._beat(), name=f"lease of {self._opening.member}")
                    else:
                        self._owner.on_committed(reply)
                        self._answered.set()
                        work.set()
                    self._expect_answer()
        finally:
            self._broker_stream = None
            if beating is not None:
                beating.cancel()
            if joined:
                self._reached_at = loop.time()
        if not self._leaving:
            raise Unavailable(f"broker {address} ended the stream for {self._what()}: retry")

    async def _beat(self) -> None:
        """Renew the lease while a stream is open, and end the stream if this process was paused."""
        while True:
            await asyncio.sleep(self._assignment_lease.beat_s)
            if not self._assignment_lease.beat():
                break
        if self._broker_stream is not None:
            stood_still = f"this process was paused: its assignment in {self._what()} is queried again"
            self._broker_stream.end(StaleMetadata(stood_still))

    def _expect_answer(self) -> None:
        if self._broker_stream is not None:
            self._broker_stream.expect(self._cluster.config.stall_timeout_s if self._commits.is_under_way else None)

    async def _requests(self, work: asyncio.Event) -> AsyncIterator[groups.GroupRequest]:
        yield replace(self._opening, held=dict(self._owner.held()))
        while work is self._work:
            await work.wait()
            work.clear()
            commit = self._commits.next()
            if commit is not None:
                yield commit
                self._expect_answer()
            if self._released:
                released, self._released = self._released, {}
                yield groups.GroupReleased(released)
            if self._leaving and self._commits.is_empty:
                yield groups.GroupLeave()
                return


async def ended(task: "asyncio.Task[None]", timeout_s: float) -> None:
    """Wait for a task, and cancel it after ``timeout_s``."""
    await asyncio.wait({task}, timeout=timeout_s)
    task.cancel()
    await asyncio.wait({task})
