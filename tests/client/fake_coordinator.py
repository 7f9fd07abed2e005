"""In-memory group coordinators: the real state machine, connected directly to its members."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable

from seaweedmq.core.group.description import describe
from seaweedmq.core.group.events import (
    Changed,
    Committing,
    Event,
    GroupLimits,
    Learned,
    MemberLeft,
    Opened,
    Outcome,
    Released,
    StreamEnd,
    StreamLost,
    Tick,
)
from seaweedmq.core.group.group_state_machine import GroupStateMachine
from seaweedmq.errors import NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.messages.groups import (
    GroupCommit,
    GroupDescription,
    GroupOpen,
    GroupReleased,
    GroupReply,
    GroupRequest,
)
from seaweedmq.model.messages.subscribe import LATEST
from seaweedmq.model.topic import TopicName

LIMITS = GroupLimits(session_timeout_s=0.3, revoke_timeout_s=5.0, rebalance_delay_s=0.01, members_max=10, detection_s=0)


class FakeCoordinator:
    """Coordinator of one group and topic."""

    def __init__(self, opening: GroupOpen, metadata: Callable[[], tuple[TopicDescription, dict[int, int]]]) -> None:
        self._metadata = metadata
        description, ends = metadata()
        committed = {}
        if opening.start == LATEST:
            committed = {s: CommittedOffset(offset=end, deliveries={}, at_us=0) for s, end in ends.items()}
        record = GroupRecord(
            topic_uid=description.topic.uid,
            start=opening.start,
            horizon=description.topic.next_segment,
            generation=0,
            members={},
            owners={},
            crashes={},
        )
        self.group = GroupStateMachine(record, committed, LIMITS, asyncio.get_running_loop().time())
        self.commits: list[GroupCommit] = []
        self.is_silent = False
        """Whether it accepts requests and replies nothing."""
        self._queues: dict[int, asyncio.Queue[GroupReply | SeaweedMQError | None]] = {}
        self._streams = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def committed(self) -> dict[int, int]:
        """Committed offset by segment."""
        return {segment: kept.offset for segment, kept in self.group.progress.committed.items()}

    def deliveries(self, segment: int) -> dict[int, int]:
        return dict(self.group.progress.committed[segment].deliveries)

    def metadata_changed(self) -> None:
        self.handle(Tick())

    def break_streams(self) -> None:
        for number in list(self._queues):
            self._close(number, Unavailable("the connection to the coordinator was reset"))

    def describe(self, topic: TopicName, group: str) -> GroupDescription:
        _, ends = self._metadata()
        found = describe(topic, self.group.record, self.group.progress, self.group.connected, ends)
        return GroupDescription(group=group, topics=(found,))

    async def join(self, opening: GroupOpen, requests: AsyncIterator[GroupRequest]) -> AsyncIterator[GroupReply]:
        self._streams += 1
        number = self._streams
        queue = self._queues[number] = asyncio.Queue()
        self.handle(
            Opened(
                stream=number,
                member=opening.member,
                incarnation=opening.incarnation,
                client=opening.client,
                held=opening.held,
            )
        )
        reading = asyncio.create_task(self._read(number, requests))
        try:
            while True:
                reply = await queue.get()
                if reply is None:
                    return
                if isinstance(reply, SeaweedMQError):
                    raise reply
                yield reply
        finally:
            reading.cancel()
            self._queues.pop(number, None)
            self.handle(StreamLost(number))
            await asyncio.wait({reading})

    async def _read(self, number: int, requests: AsyncIterator[GroupRequest]) -> None:
        async for request in requests:
            if self.is_silent:
                continue
            if isinstance(request, GroupCommit):
                self.commits.append(request)
                self.handle(Committing(number, request, 0))
            elif isinstance(request, GroupReleased):
                self.handle(Released(number, request.segments))
            else:
                self.handle(MemberLeft(number))

    def handle(self, event: Event) -> None:
        now = asyncio.get_running_loop().time()
        try:
            description, ends = self._metadata()
        except NotFound as error:
            for number in list(self._queues):
                self._close(number, error)
            return
        segments = description.by_id()
        events: Iterable[Event] = (Changed(segments, description.topic.next_segment), Learned(ends), event)
        for each in events:
            self._say(self.group.handle(each, now))
        if self._timer is not None:
            self._timer.cancel()
        wake_at = self.group.wake_at
        if wake_at is not None:
            self._timer = asyncio.get_running_loop().call_at(wake_at, self.handle, Tick())

    def _say(self, outcome: Outcome) -> None:
        for reply in outcome.replies:
            if isinstance(reply, StreamEnd):
                self._close(reply.stream, reply.error)
            elif reply.stream in self._queues:
                self._queues[reply.stream].put_nowait(reply.message)

    def _close(self, number: int, error: SeaweedMQError | None) -> None:
        queue = self._queues.get(number)
        if queue is not None:
            queue.put_nowait(error)
