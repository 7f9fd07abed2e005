"""Members of groups as plain streams, without a client."""

from collections.abc import Mapping, Sequence

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.messages.groups import (
    GroupAssignment,
    GroupCommit,
    GroupCommitted,
    GroupLeave,
    GroupOpen,
    GroupReleased,
    Ownership,
    Position,
)
from seaweedmq.model.messages.subscribe import EARLIEST, Start
from seaweedmq.model.topic import TopicName
from tests.broker.testbed import NAME, Host, Streaming, Testbed

GROUP = "billing"


class Joining:
    """A member with one stream at a time. It releases revoked segments at once."""

    def __init__(
        self, testbed: Testbed, member: str, *, incarnation: int = 1, start: Start = EARLIEST, name: TopicName = NAME
    ) -> None:
        self.testbed = testbed
        self.member = member
        self.incarnation = incarnation
        self.start = start
        self.name = name
        self.held: dict[int, Ownership] = {}
        """Segments that the member reads, with the generation of each."""
        self.let_go: list[int] = []
        self.generation = 0
        self.assignments = 0
        self._stream: Streaming | None = None
        self.number = 0
        self._answers: list[GroupCommitted] = []

    @property
    def stream(self) -> Streaming:
        assert self._stream is not None
        return self._stream

    @property
    def owns(self) -> set[int]:
        self.take()
        return set(self.held)

    async def join(self, host: Host, group: str = GROUP) -> "Joining":
        self.number = 0
        self._answers.clear()
        self._stream = Streaming(self.testbed, host.api.join_group)
        await self.stream.send(
            GroupOpen(
                group=group,
                topic=self.name,
                member=self.member,
                incarnation=self.incarnation,
                start=self.start,
                client="a test",
                held={s: o.generation for s, o in self.held.items()},
            )
        )
        return self

    async def joined(self, host: Host, group: str = GROUP) -> "Joining":
        before = self.assignments
        await self.join(host, group)
        await self.until(lambda: self.assignments > before)
        return self

    def take(self) -> None:
        while self.stream.replies:
            reply = self.stream.replies.popleft()
            if isinstance(reply, GroupCommitted):
                self._answers.append(reply)
                continue
            assert isinstance(reply, GroupAssignment), reply
            assert reply.generation >= self.generation, "generations rise"
            self.generation = reply.generation
            self.assignments += 1
            self._adopt({o.segment: o for o in reply.owned})

    def _adopt(self, owned: dict[int, Ownership]) -> None:
        self._release([s for s, o in self.held.items() if s not in owned or owned[s].generation != o.generation])
        for segment, ownership in owned.items():
            self.held.setdefault(segment, ownership)

    def _release(self, segments: Sequence[int]) -> None:
        released = {s: self.held.pop(s).generation for s in segments}
        self.let_go += released
        if released:
            self.stream.put(GroupReleased(released))

    async def until(self, condition: object) -> None:
        assert callable(condition)

        def holds() -> bool:
            self.take()
            return bool(condition()) or self.stream.ended

        await self.testbed.until(holds)
        self.take()
        if not condition():
            raise self.stream.error or EOFError

    async def until_owns(self, *segments: int) -> None:
        await self.until(lambda: set(self.held) == set(segments))

    async def commit(self, offsets: Mapping[int, int], generation: int | None = None) -> Mapping[int, str]:
        await self.send_commit(offsets, generation)
        number = self.number
        await self.until(lambda: any(a.number == number for a in self._answers))
        return next(a.refused for a in self._answers if a.number == number)

    async def send_commit(self, offsets: Mapping[int, int], generation: int | None = None) -> None:
        self.number += 1
        positions = tuple(
            Position(
                segment=s,
                generation=self.held[s].generation if generation is None else generation,
                offset=offset,
                deliveries={},
            )
            for s, offset in offsets.items()
        )
        await self.stream.send(GroupCommit(self.number, positions))

    async def leave(self) -> None:
        await self.stream.send(GroupLeave())
        assert await self.stream.failure() is None
        self.held.clear()

    async def failure(self) -> SeaweedMQError | None:
        return await self.stream.failure()

    async def vanish(self) -> None:
        """Break the stream; the member keeps what it holds."""
        await self.stream.close()


async def settled(members: Sequence[Joining], segments: int) -> None:
    """Wait until the members own all segments, each exactly once, and their counts differ by one at most."""

    def holds() -> bool:
        counts = [len(m.owns) for m in members]
        every = [s for m in members for s in m.held]
        return len(every) == segments == len(set(every)) and max(counts) - min(counts) <= 1

    await members[0].testbed.until(holds)
