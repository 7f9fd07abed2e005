"""A consumer group of the simulated cluster: members that are real clients, and die, freeze, leave and return.

Each incarnation of a member has a name of its own, so that the group's record in etcd shows when the group removed it.
"""

import asyncio
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from seaweedmq.client.subscribe.messages import Message
from seaweedmq.codec.state import keys
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.group_record import GroupRecord
from seaweedmq.model.group_record import SegmentOwner as Ownership
from seaweedmq.model.messages.groups import GroupCommit, GroupCommitted, GroupLeave, GroupOpen
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner
from tests.sim.rules.retention import without
from tests.sim.users.places import Place
from tests.sim.users.workload import connect
from tests.support.group_history import Delivered, GroupHistory, check_group
from tests.support.history import History, Outcome, Sent, Violation

if TYPE_CHECKING:
    from tests.sim.world import World

GROUP = "readers"
LOOK_AGAIN_S = 0.1
LOOK_SOON_S = 0.01
UNREAD_MIN = 10
JUST_NOW_S = 0.02
REFUSED_SHARE = 0.3
"""Share of decisions in which a member rejects its records, in scenarios with rejections."""


class Member(Place):
    """A member that is a real client."""

    def __init__(self, world: "World", group: "Group", name: str) -> None:
        super().__init__(world, name)
        self._group = group

    def _next(self) -> Owner:
        owner = super()._next()
        self._group.lives.add(owner.name)
        return owner

    def kill(self) -> None:
        self._group.history.deaths_ns.setdefault(self.owner.name, int(self._world.loop.time() * 1e9))
        super().kill()

    async def _live(self) -> None:
        world, group, me = self._world, self._group, self.owner.name
        client = await connect(world, self.owner, world.scenario.subscriber)
        hand = Hand(self, self._rng, world.loop)
        try:
            async with (
                client,
                client.subscriber(str(group.topic), group=GROUP, start="earliest", member=me) as subscriber,
            ):
                async for message in subscriber:
                    world.note(me, f"got {message.segment}:{message.offset} {message.value[:24]!r}")
                    group.on_delivered(me, message.segment, message.offset)
                    given = Delivered(
                        member=me,
                        at_ns=int(world.loop.time() * 1e9),
                        segment=message.segment,
                        offset=message.offset,
                        key=message.key,
                        value=message.value,
                    )
                    if world.scenario.members_refuse:
                        hand.take(message, given)
                    else:
                        self.accepted(given)
                        if self._rng.random() < 0.3:
                            await asyncio.sleep(self._rng.uniform(0, 0.05))
                        message.ack()
                    if self._leaving:
                        hand.forget()
                        break
            world.note(me, "left")
            if me not in group.left_well:  # its last commit had no answer in time: it counts as killed
                group.history.deaths_ns.setdefault(me, int(world.loop.time() * 1e9))
        except SeaweedMQError as error:
            world.note(me, f"is out of the group: {error!r}")
            group.on_error(me, error)
        finally:
            hand.forget()

    def accepted(self, given: Delivered) -> None:
        self._group.history.delivered.append(given)


class Hand:
    """Records that a member holds for a moment, and then processes or rejects together, in any order, each for a
    different time."""

    def __init__(self, member: Member, rng: random.Random, loop: asyncio.AbstractEventLoop) -> None:
        self._member = member
        self._rng = rng
        self._loop = loop
        self._held: list[tuple[Message, Delivered]] = []

    def take(self, message: Message, given: Delivered) -> None:
        if not self._held:
            self._loop.call_later(self._rng.choice((0.0, 0.01, 0.3)), self._decide)
        self._held.append((message, given))

    def forget(self) -> None:
        """Drop the records: their member has left."""
        self._held = []

    def _decide(self) -> None:
        held, self._held = self._held, []
        if self._rng.random() < REFUSED_SHARE:
            self._rng.shuffle(held)
            for message, _ in held:
                message.nack(delay=self._rng.choice((0.0, 0.0, 0.01, 0.5, 2.0)))
            return
        for message, given in held:
            self._member.accepted(given)
            message.ack()


class Group:
    """The members of a group that reads one topic, and their observations."""

    def __init__(self, world: "World", topic: str, members: int, sent: History) -> None:
        self.topic = TopicName.parse(topic)
        self.history = GroupHistory(sent=sent.sent)
        self.lives: set[str] = set()
        """Names of all incarnations so far."""
        self.left_well: set[str] = set()
        """Incarnations that left after all their commits were answered."""
        self.members = [Member(world, self, f"member-{number}") for number in range(members)]
        self._world = world
        self._present: set[str] = set()
        self._owners: Mapping[int, Ownership] = {}
        self._given_s: dict[str, float] = {}
        """Time of each incarnation's last delivered record."""
        self._out: set[str] = set()
        """Incarnations that the group has removed, and that have not joined again."""
        self._under_way: dict[str, dict[int, dict[int, tuple[int, int, int]]]] = {}
        """Incarnation -> number of the commit -> segment -> its generation, the owner's generation when it was sent,
        and the offset."""
        self._violations: list[Violation] = []
        world.network.tap = self.on_message
        world.cluster.on_group = self.on_record

    def owns(self, life: str) -> set[int]:
        """Return segments that an incarnation owns in the group's record and need not release."""
        owners = self._world.cluster.state.owners(self.topic, GROUP)
        return {segment for segment, owner in owners.items() if owner.member == life and not owner.revoking}

    @property
    def present(self) -> set[str]:
        """Return incarnations that are members in the group's record."""
        return self._present

    def on_record(self, record: GroupRecord) -> None:
        """Note a written group record: a member that is no longer in it has lost its segments.

        So has one that was removed and joined again since the last write: its segments have another generation, and it
        never got a request to release them."""
        now = int(self._world.loop.time() * 1e9)
        for gone in self._present - record.members.keys():
            self.history.deaths_ns.setdefault(gone, now)
            self._out.add(gone)
        for segment, was in self._owners.items():
            owner = record.owners.get(segment)
            if owner is not None and owner.generation != was.generation and not was.revoking:
                self.history.deaths_ns.setdefault(was.member, now)
        self._owners = record.owners
        self._present = set(record.members)
        self._out -= self._present

    def on_delivered(self, life: str, segment: int, offset: int) -> None:
        """Note a delivered record: a removed member must get none, even if it slept meanwhile."""
        self._given_s[life] = self._world.loop.time()
        if life in self._out:
            self._violations.append(Violation("zombie", f"{life}, which is out of the group, got {segment}:{offset}"))

    def on_error(self, life: str, error: SeaweedMQError) -> None:
        """Note that a member failed, which is allowed once the group has removed it."""
        if life in self._present and life not in self.history.deaths_ns:
            self._violations.append(Violation("member gave up", f"{life}, which is in the group: {error!r}"))

    def on_message(self, owner: Owner | None, message: object) -> None:
        """Note a message that a member sent or received: commits of an ownership that was over must be rejected."""
        if owner is None or owner.name not in self.lives:
            return
        commits = self._under_way.setdefault(owner.name, {})
        if isinstance(message, GroupLeave):
            self.left_well.add(owner.name)
        elif isinstance(message, GroupOpen):
            commits.clear()
        elif isinstance(message, GroupCommit):
            owners = self._world.cluster.state.owners(self.topic, GROUP)
            commits[message.number] = {
                p.segment: (p.generation, owners[p.segment].generation, p.offset)
                for p in message.positions
                if p.segment in owners
            }
        elif isinstance(message, GroupCommitted):
            for segment, (generation, current, offset) in commits.pop(message.number, {}).items():
                if segment in message.refused:
                    continue
                self._world.cluster.acknowledged[keys.offset_key(self.topic, GROUP, segment)] = offset
                if generation < current:
                    self._violations.append(
                        Violation(
                            "zombie",
                            f"{owner.name} committed segment {segment} of generation {generation}, it was {current}",
                        )
                    )

    def is_removed(self, life: str) -> bool:
        """Whether the group has removed that incarnation of a member."""
        return life in self._out

    def reading(self) -> list[Member]:
        """Return members with recently delivered records, while more are left."""
        since_s = self._world.loop.time() - JUST_NOW_S
        if len(self._missing()) < UNREAD_MIN:
            return []
        return [m for m in self.members if m.is_running and self._given_s.get(m.owner.name, -1.0) > since_s]

    async def until(self, is_so: Callable[[], bool], for_s: float) -> bool:
        end_s = self._world.loop.time() + for_s
        while not is_so():  # time is virtual
            if self._world.loop.time() >= end_s:
                return False
            await asyncio.sleep(LOOK_SOON_S)
        return True

    async def finish(self) -> None:
        try:
            while self._missing():  # noqa: ASYNC110 - time is virtual
                await asyncio.sleep(LOOK_AGAIN_S)
        except asyncio.CancelledError:
            self._world.violations += self._held_back()
            raise

    @property
    def brokers(self) -> list[str]:
        return [process.name for process in self._world.processes]

    def _held_back(self) -> Iterator[Violation]:
        """Yield segments held back: long after the last blow none is to be released, and removed members own none."""
        living = {m.owner.name for m in self.members if m.is_running}
        for segment, owner in self._world.cluster.state.owners(self.topic, GROUP).items():
            if owner.revoking or owner.member not in living:
                which = "lives" if owner.member in living else "is gone"
                yield Violation(
                    "held back", f"segment {segment} is not given on: {owner.member}, which {which}, has it"
                )

    def _missing(self) -> set[bytes]:
        acked = {s.value for s in self._promised() if s.outcome is Outcome.ACKED}
        return acked - {d.value for d in self.history.delivered}

    def _promised(self) -> list[Sent]:
        """Return the sent records that retention left."""
        return without(History(self.history.sent), self._world.retained.starts(self.topic)).sent

    def violations(self) -> list[Violation]:
        """Judge the group, once all records were delivered."""
        return self._violations + [Violation(f"group {v.rule}", v.detail) for v in self._judged()]

    def _judged(self) -> list[Violation]:
        refuse = self._world.scenario.members_refuse
        return check_group(replace(self.history, sent=self._promised()), complete=True, members_refuse=refuse)
