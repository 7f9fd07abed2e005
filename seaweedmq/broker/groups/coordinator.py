"""Coordinator of one group and topic: the shell around ``core.group.group_state_machine``, on the leader.

Events enter the state machine at once. One task writes their outcome, gathered into few transactions, and sends replies
once it is written. If a write fails, all streams end, and the members rejoin at a coordinator that reads etcd again.
The state in memory may be ahead of it.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable

from seaweedmq.broker.groups.member_session import MemberSession
from seaweedmq.broker.groups.store import GroupName, GroupStore
from seaweedmq.broker.groups.watermarks import Watermarks
from seaweedmq.core.group import events
from seaweedmq.core.group.description import describe
from seaweedmq.core.group.group_state_machine import GroupStateMachine
from seaweedmq.core.group.memory import GroupMemory, GroupSize
from seaweedmq.errors import ProtocolViolation, SeaweedMQError, StaleMetadata, Unavailable, fresh, unraised
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.group_record import GroupRecord
from seaweedmq.model.messages.groups import (
    DELIVERIES_KEPT_MAX,
    GroupCommit,
    GroupLeave,
    GroupOpen,
    GroupReleased,
    GroupRequest,
    GroupTopic,
)
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

COMMIT_INTERVAL_S = 0.05
"""Time to gather commits into one write, in seconds."""
IDLE_S = 5.0
"""Time that a group without members stays in memory, in seconds."""


class Coordinator:
    """The coordinator of one group and topic. Once it is over, the next member creates another."""

    def __init__(
        self,
        name: GroupName,
        group: GroupStateMachine,
        *,
        store: GroupStore,
        watermarks: Watermarks,
        config: BrokerConfig,
        wall_us: Callable[[], int],
        written: Callable[[GroupRecord], None],
        memory: GroupMemory,
    ) -> None:
        self.name = name
        self.group = group
        self.over = False
        """Whether the coordinator rejects all events."""
        self._store = store
        self._watermarks = watermarks
        self._config = config
        self._wall_us = wall_us
        self._written = written
        self._size = GroupSize(memory, group.record, group.progress.committed)
        self._sessions: dict[int, MemberSession] = {}
        self._streams = 0
        self._pending = events.Outcome()
        self._waiting: list[asyncio.Future[None]] = []
        """Callers that wait until the pending outcome is written."""
        self._deletion_error: SeaweedMQError | None = None
        """Error sent to the members, set once the group is to be deleted."""
        self._changed = Signal()

    async def run(self) -> None:
        """Write outcomes, send replies and keep time until the group is idle or deleted, or a write fails."""
        clock = asyncio.create_task(self._keep_time(), name=f"clock of {self.name}")
        writer = asyncio.create_task(self._write_loop(), name=f"writer of {self.name}")
        tasks = (writer, clock)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            # Before any await: a cancellation at it must not leave the members waiting forever.
            self.over = True
            self._size.close()
            error = next((t.exception() for t in tasks if t.done() and not t.cancelled() and t.exception()), None)
            if isinstance(error, SeaweedMQError):
                self._end(Unavailable(f"{self.name} has failed: {error}"))
            else:
                self._end(StaleMetadata("the leader changed: the group continues at the new one"))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
        if error is not None and not isinstance(error, SeaweedMQError):
            raise error

    def handle(self, event: events.Event) -> None:
        """Handle an event; its outcome is written, and its replies are sent, soon."""
        outcome = self.group.handle(event, asyncio.get_running_loop().time())
        self._size.changed(outcome)
        self._pending = self._pending.then(outcome)
        self._changed.fire()

    async def apply(self, event: events.Event) -> None:
        """Handle an event, and return once its outcome is written. Errors are those of ``GroupStore.write``."""
        settled = self._settled()
        self.handle(event)
        await settled

    async def delete(self, error: SeaweedMQError) -> None:
        """Delete the group permanently; its members' streams end with ``error``."""
        settled = self._settled()
        self._deletion_error = error
        self._changed.fire()
        await settled

    def abandon(self, error: SeaweedMQError) -> None:
        """End the coordinator without a write: the topic was deleted, and the group with it."""
        self.over = True
        self._end(error)
        self._changed.fire()

    def describe(self, high_watermarks: dict[int, int]) -> GroupTopic:
        """Return the group's description for administration."""
        return describe(self.name.topic, self.group.record, self.group.progress, self.group.connected, high_watermarks)

    async def open(self, opening: GroupOpen) -> MemberSession:
        """Return a stream of a member, for :meth:`read` and then :meth:`close`.

        Raises ResourceExhausted if groups have no memory for another member, StaleMetadata if the coordinator is over.
        """
        known = self.group.members.get(opening.member)
        if known is not None and known.incarnation != opening.incarnation:
            await self._learn_ends()  # the earlier incarnation is about to lose its segments
        if self.over:
            raise StaleMetadata(f"the coordinator of {self.name} has ended: retry")
        if opening.member not in self.group.members:
            self._size.check_member()
        self._streams += 1
        session = self._sessions[self._streams] = MemberSession(self._streams, opening.member, opening.held)
        self.handle(
            events.Opened(
                stream=session.stream,
                member=opening.member,
                incarnation=opening.incarnation,
                client=opening.client,
                held=opening.held,
            )
        )
        return session

    async def read(self, session: MemberSession, requests: AsyncIterator[GroupRequest]) -> None:
        """Handle the member's requests until it leaves or its stream ends."""
        end: SeaweedMQError | None = None
        left = False
        try:
            async for request in requests:
                match request:
                    case GroupCommit():
                        _check(request)
                        await session.expect(request.number)
                        self._size.check_commit(request)
                        await self._query_ends(session.member, request)
                        self.handle(events.Committing(session.stream, request, self._wall_us()))
                    case GroupReleased(segments):
                        self.handle(events.Released(session.stream, segments))
                    case GroupLeave():
                        self.handle(events.MemberLeft(session.stream))
                        left = True  # the stream ends once that is written
                        return
                    case GroupOpen():
                        raise ProtocolViolation("a member's stream is opened once: open another stream")
        except SeaweedMQError as error:
            end = unraised(error)
        finally:
            if not left:
                self.handle(events.StreamLost(session.stream))
                session.end(end)

    def close(self, session: MemberSession) -> None:
        """End a stream, on either side's behalf."""
        self._sessions.pop(session.stream, None)
        if not self.over:
            self.handle(events.StreamLost(session.stream))

    async def _query_ends(self, member: str, commit: GroupCommit) -> None:
        """Query the high watermarks of segments where the commit is ahead of the known ones.

        Raises Unavailable if a primary does not answer in time, and the segment is not sealed meanwhile.
        """
        try:
            async with asyncio.timeout(self._config.rpc_timeout_s):
                while ahead := self._ahead(commit):
                    marks = await self._watermarks.ask(self.name.topic, ahead)
                    self.handle(events.Learned(marks))
                    if marks.keys() >= self._ahead(commit):
                        return
                    log.debug(
                        "commit delayed: %s: member %s: high watermarks of segments %s are unknown; retrying",
                        self.name,
                        member,
                        sorted(ahead),
                    )
                    await self._watermarks.pause()
        except TimeoutError:
            raise Unavailable(f"{self.name}: high watermarks of segments {sorted(ahead)} are unknown: retry") from None

    def _ahead(self, commit: GroupCommit) -> set[int]:
        """Return the open segments with commits above the known high watermark."""
        progress = self.group.progress
        return {
            p.segment
            for p in commit.positions
            if p.offset > progress.end(p.segment)
            and p.segment in progress.segments
            and progress.segments[p.segment].is_open
        }

    async def _learn_ends(self) -> None:
        """Query the ends of segments whose member is about to lose them: unread records tell a crash from idleness."""
        self.handle(events.Learned(await self._watermarks.ask(self.name.topic, self.group.owned)))

    async def _keep_time(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            wake_at = self.group.wake_at
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._changed.wait()
            except TimeoutError:
                if self.group.loses_at is not None and self.group.loses_at <= loop.time():
                    await self._learn_ends()
                self.handle(events.Tick())

    async def _write_loop(self) -> None:
        loop = asyncio.get_running_loop()
        written_at = loop.time() - COMMIT_INTERVAL_S
        while True:
            if not await self._something_to_write() or self.over:
                return
            if self._deletion_error is None and self._pending.record is None and not self._waiting:
                await asyncio.sleep(written_at + COMMIT_INTERVAL_S - loop.time())
            waiting, self._waiting = self._waiting, []
            try:
                await self._write_pending()
            except BaseException as error:
                _fail(waiting, error)
                raise
            written_at = loop.time()
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
            if self._deletion_error is not None:
                return

    async def _something_to_write(self) -> bool:
        """Wait for an outcome to write; return False if the group stays idle."""
        while self._deletion_error is None and self._pending == events.Outcome() and not self._waiting:
            if self.over:
                break
            try:
                async with asyncio.timeout(None if self._sessions or self.group.members else IDLE_S):
                    await self._changed.wait()
            except TimeoutError:
                return bool(self._sessions or self.group.members)
        return True

    async def _write_pending(self) -> None:
        if self._deletion_error is not None:
            await self._store.delete()
            self.handle(events.Deleted(self._deletion_error))
            pending = self._pending
        else:
            pending, self._pending = self._pending, events.Outcome()
            if pending.record is not None or pending.committed:
                await self._store.write(pending.record, pending.committed)
            self._store.check_leading()
            if pending.record is not None:
                self._written(pending.record)
        for reply in pending.replies:
            session = self._sessions.get(reply.stream)
            if session is None:
                continue
            if isinstance(reply, events.StreamEnd):
                session.end(reply.error)
            elif unsent := session.enqueue(reply.message):
                self.handle(events.Released(session.stream, unsent))

    def _settled(self) -> "asyncio.Future[None]":
        """Return a future of the write of the present outcome; raise StaleMetadata if the coordinator is over."""
        if self.over:
            raise StaleMetadata(f"the coordinator of {self.name} has ended: retry")
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        return waiter

    def _end(self, error: SeaweedMQError) -> None:
        _fail(self._waiting, error)
        for session in self._sessions.values():
            session.end(error)


def _fail(waiting: list["asyncio.Future[None]"], error: BaseException) -> None:
    for waiter in waiting:
        if not waiter.done():
            waiter.set_exception(
                fresh(error) if isinstance(error, SeaweedMQError) else StaleMetadata("the leader changed")
            )


def _check(commit: GroupCommit) -> None:
    """Raise ProtocolViolation for a commit that no member may send."""
    for position in commit.positions:
        if len(position.deliveries) > DELIVERIES_KEPT_MAX:
            raise ProtocolViolation(
                f"commit of segment {position.segment} has {len(position.deliveries)} deliveries: "
                f"send at most {DELIVERIES_KEPT_MAX}"
            )
        if position.offset < 0 or any(o < position.offset or n < 1 for o, n in position.deliveries.items()):
            raise ProtocolViolation(
                f"commit of segment {position.segment} at {position.offset}: offsets start at 0, and deliveries are "
                "counted from 1 for records at or above the offset"
            )
    if len({p.segment for p in commit.positions}) < len(commit.positions):
        raise ProtocolViolation("a commit names a segment twice: name each segment once")
