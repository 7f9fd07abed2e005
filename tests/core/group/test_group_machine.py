"""A group under members, leaders, segments and time in any order.

Invariants, of what members see and of what is persisted:

- no segment is assigned while another member may rightly believe that it owns it;
- committed offsets never fall, except by a reset; commits of another generation are rejected;
- a segment is assigned only after every segment before it is finished;
- without further events, every due segment has an owner that knows it, shares are even, and the group is quiet.
"""

from collections import deque
from dataclasses import dataclass, field, replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from seaweedmq.core.group import events
from seaweedmq.core.group.group_state_machine import GroupStateMachine
from seaweedmq.errors import Fenced
from seaweedmq.model.group_record import CommittedOffset, GroupRecord
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommit, GroupCommitted, GroupReply, Position
from seaweedmq.model.messages.subscribe import EARLIEST
from seaweedmq.model.segment import SegmentState
from tests.core.group.group_transcript import LIMITS, segment

NAMES = st.sampled_from(["a", "b", "c", "d", "e", "f"])
PICK = st.integers(0, 1_000)
SESSION_S, REVOKE_S = LIMITS.session_timeout_s, LIMITS.revoke_timeout_s


@dataclass(eq=False)
class Actor:
    """A subscriber and its knowledge."""

    name: str
    incarnation: int
    stream: int | None = None
    inbox: deque[GroupReply | events.StreamEnd] = field(default_factory=deque)
    believes: dict[int, int] = field(default_factory=dict)
    """Segment -> generation in which it reads it."""
    letting_go: dict[int, int] = field(default_factory=dict)
    """Revoked segments that it is still busy with."""
    gone_at: float = 0.0
    """Time at which it lost its stream."""


@dataclass(eq=False)
class Grant:
    """An instruction to a member to read a segment."""

    actor: Actor
    segment: int
    generation: int
    withdrawn_at: float | None = None


class Members(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.segments = {n: segment(n) for n in range(3)}
        self.ends = dict.fromkeys(self.segments, 0)
        self.record = GroupRecord(
            topic_uid=7, start=EARLIEST, horizon=3, generation=0, members={}, owners={}, crashes={}
        )
        self.committed: dict[int, CommittedOffset] = {}
        self.actors: list[Actor] = []
        self.speakers: dict[int, Actor] = {}
        self.grants: list[Grant] = []
        self.void: set[tuple[int, int]] = set()
        """Segments and generations from before a reset."""
        self.incarnations = 0
        self.leader_since = 0.0
        self.dying = False
        self.lead()

    # --- the leader
    def lead(self) -> None:
        self.forget_what_is_over()
        self.group = GroupStateMachine(self.record, self.committed, LIMITS, self.now)
        self.leader_since = self.now
        for actor in self.actors:
            self.lose_stream(actor)
        self.handle(events.Changed(self.segments, len(self.segments)))

    def handle(self, event: events.Event) -> events.Outcome:
        self.forget_what_is_over()
        outcome = self.group.handle(event, self.now)
        if self.dying and outcome != events.Outcome():
            self.dying = False
            self.lead()
            return outcome
        self.persist(outcome, event)
        for reply in outcome.replies:
            self.deliver(reply)
        return outcome

    def persist(self, outcome: events.Outcome, event: events.Event) -> None:
        if isinstance(event, events.Reset):
            self.void |= {(number, owner.generation) for number, owner in self.record.owners.items()}
        if outcome.record is not None:
            assert outcome.record.generation >= self.record.generation
            self.record = outcome.record
            for grant in self.grants:
                owner = self.record.owners.get(grant.segment)
                if owner is not None and owner.revoking and grant.withdrawn_at is None:
                    grant.withdrawn_at = self.now
        for number, committed in outcome.committed.items():
            if committed is None:
                assert isinstance(event, events.Reset)
                self.committed.pop(number, None)
                continue
            before = self.committed.get(number)
            assert isinstance(event, events.Reset) or before is None or committed.offset >= before.offset
            self.committed[number] = committed

    def deliver(self, reply: events.Reply | events.StreamEnd) -> None:
        actor = self.speakers[reply.stream]
        if actor.stream != reply.stream:
            return  # it no longer reads that stream
        if isinstance(reply, events.StreamEnd):
            actor.inbox.append(reply)
            return
        actor.inbox.append(reply.message)
        if isinstance(reply.message, GroupAssignment):
            for owned in reply.message.owned:
                self.grant(actor, owned.segment, owned.generation)

    def grant(self, actor: Actor, number: int, generation: int) -> None:
        if any(g.actor is actor and (g.segment, g.generation) == (number, generation) for g in self.grants):
            return
        before = self.ancestors(number)
        assert all(self.group.progress.finished(p) for p in before), f"{number} overtakes what came before it"
        self.forget_what_is_over()
        rivals = [g for g in self.grants if g.segment == number]
        assert not rivals, f"{actor.name} gets {number} while {rivals[0].actor.name} may read it"
        self.grants.append(Grant(actor, number, generation))

    def ancestors(self, number: int) -> set[int]:
        parents = self.segments[number].predecessors
        return {*parents, *(a for p in parents for a in self.ancestors(p))}

    def forget_what_is_over(self) -> None:
        self.grants = [g for g in self.grants if not self.is_over(g)]

    def is_over(self, grant: Grant) -> bool:
        """Whether the segment was rightly revoked from the member, even if it does not know yet."""
        actor = grant.actor
        if actor not in self.actors:
            return True
        known = self.record.members.get(actor.name)
        if known is not None and known.incarnation != actor.incarnation:
            return True
        if actor.stream is None and self.now >= max(actor.gone_at, self.leader_since) + SESSION_S:
            return True
        withdrawn = grant.withdrawn_at
        return withdrawn is not None and self.now >= max(withdrawn, self.leader_since) + REVOKE_S

    # --- members
    def lose_stream(self, actor: Actor) -> None:
        if actor.stream is not None:
            actor.stream, actor.gone_at = None, self.now
        actor.inbox.clear()
        held = {**actor.letting_go, **actor.believes}
        self.grants = [g for g in self.grants if g.actor is not actor or held.get(g.segment) == g.generation]

    def open(self, actor: Actor) -> None:
        if actor.stream is None and self.now >= max(actor.gone_at, self.leader_since) + SESSION_S:
            self.grants = [g for g in self.grants if g.actor is not actor]  # it was expelled, and learns so now
        self.lose_stream(actor)
        stream = len(self.speakers) + 1
        self.speakers[stream] = actor
        actor.stream = stream
        self.handle(
            events.Opened(
                stream=stream,
                member=actor.name,
                incarnation=actor.incarnation,
                client="host",
                held={**actor.believes, **actor.letting_go},
            )
        )

    def listen(self, actor: Actor) -> None:
        while actor.inbox:
            message = actor.inbox.popleft()
            match message:
                case events.StreamEnd(_, error):
                    self.lose_stream(actor)
                    if isinstance(error, Fenced):
                        self.bury(actor)
                case GroupAssignment():
                    owned = {o.segment: o.generation for o in message.owned}
                    for number, generation in list(actor.believes.items()):
                        if owned.get(number) != generation:
                            actor.letting_go[number] = actor.believes.pop(number)
                    for number, generation in owned.items():
                        assert actor.letting_go.get(number) != generation, "what was withdrawn does not come back"
                        actor.letting_go.pop(number, None)
                        actor.believes[number] = generation

    def let_go(self, actor: Actor) -> None:
        released, actor.letting_go = actor.letting_go, {}
        self.grants = [g for g in self.grants if g.actor is not actor or released.get(g.segment) != g.generation]
        if actor.stream is not None and released:
            self.handle(events.Released(actor.stream, released))

    def bury(self, actor: Actor) -> None:
        if actor in self.actors:
            self.actors.remove(actor)
        self.grants = [g for g in self.grants if g.actor is not actor]

    def pick(self, number: int) -> Actor:
        return self.actors[number % len(self.actors)]

    # --- rules
    @initialize(count=st.integers(1, 5))
    def some_have_joined(self, count: int) -> None:
        for name in "abcde"[:count]:
            self.somebody_joins(name)
        self.everybody_listens_for_a_while(1)

    @rule(name=NAMES)
    def somebody_joins(self, name: str) -> None:
        self.incarnations += 1
        actor = Actor(name, self.incarnations)
        self.actors.append(actor)
        self.open(actor)

    @precondition(lambda self: self.actors)
    @rule(pick=PICK, noticed=st.booleans())
    def a_stream_breaks_and_its_member_may_be_back_before_anybody_notices(self, pick: int, noticed: bool) -> None:
        actor = self.pick(pick)
        stream = actor.stream
        self.lose_stream(actor)
        if noticed and stream is not None:
            self.handle(events.StreamLost(stream))
        elif not noticed:
            self.open(actor)

    @precondition(lambda self: self.actors)
    @rule(pick=PICK)
    def a_member_comes_back(self, pick: int) -> None:
        actor = self.pick(pick)
        if actor.stream is None:
            self.open(actor)

    @precondition(lambda self: len(self.actors) > 2)
    @rule(pick=PICK)
    def a_member_dies(self, pick: int) -> None:
        actor = self.pick(pick)
        self.bury(actor)
        if actor.stream is not None:
            self.handle(events.StreamLost(actor.stream))

    @precondition(lambda self: len(self.actors) > 2)
    @rule(pick=PICK)
    def a_member_leaves(self, pick: int) -> None:
        actor = self.pick(pick)
        if actor.stream is not None:
            self.bury(actor)
            self.handle(events.MemberLeft(actor.stream))

    @precondition(lambda self: self.actors)
    @rule(pick=PICK)
    def a_member_listens(self, pick: int) -> None:
        self.listen(self.pick(pick))

    @precondition(lambda self: self.actors)
    @rule(pick=PICK)
    def a_member_lets_go(self, pick: int) -> None:
        self.let_go(self.pick(pick))

    @precondition(lambda self: self.actors)
    @rule(pick=PICK, share=st.sampled_from([0, 0.5, 1, 2]))
    def a_member_commits(self, pick: int, share: float) -> None:
        """All segments that it reads or read: it does not know better."""
        actor = self.pick(pick)
        for number, generation in {**actor.letting_go, **actor.believes}.items():
            if actor.stream is not None:
                self.commit(actor, actor.stream, number, generation, int(self.ends[number] * share))

    def commit(self, actor: Actor, stream: int, number: int, generation: int, offset: int) -> None:
        self.handle(events.Learned({n: end for n, end in self.ends.items() if self.segments[n].is_open}))
        owner, before = self.group.record.owners.get(number), self.group.progress.committed.get(number)
        position = Position(segment=number, generation=generation, offset=offset, deliveries={})
        outcome = self.handle(events.Committing(stream, GroupCommit(1, (position,)), at_us=1))
        rightful = owner is not None and (owner.member, owner.generation) == (actor.name, generation)
        rightful = rightful and (number, generation) not in self.void
        answers = [
            r.message for r in outcome.replies if isinstance(r, events.Reply) and isinstance(r.message, GroupCommitted)
        ]
        for answer in answers:
            assert (number in answer.refused) == (not rightful or offset > self.ends[number])
        if not answers or not rightful or offset > self.ends[number]:
            assert number not in outcome.committed
        elif before is None or before.offset <= offset:
            assert outcome.committed[number] is not None

    @rule(which=PICK, records=st.integers(1, 20))
    def somebody_publishes(self, which: int, records: int) -> None:
        numbers = [n for n, s in self.segments.items() if s.is_open]
        self.ends[numbers[which % len(numbers)]] += records

    @precondition(lambda self: len(self.segments) < 12)
    @rule(which=PICK, parents=st.integers(1, 2), children=st.integers(1, 2))
    def segments_are_sealed_and_succeeded(self, which: int, parents: int, children: int) -> None:
        numbers = [n for n, s in self.segments.items() if s.is_open]
        chosen = numbers[which % len(numbers) :][:parents]
        for number in chosen:
            self.segments[number] = replace(
                self.segments[number], state=SegmentState.SEALED, end_offset=self.ends[number]
            )
        start = max(self.ends[n] for n in chosen)
        for _ in range(children):
            child = len(self.segments)
            self.segments[child] = segment(child, *chosen, start=start)
            self.ends[child] = start
        self.segments = dict(self.segments)
        self.handle(events.Changed(self.segments, len(self.segments)))

    @rule(seconds=st.sampled_from([0.01, 0.1, 0.3, 2, 5.9, 6.1, 299, 301]))
    def time_passes(self, seconds: float) -> None:
        self.wait(seconds)

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while (wake_at := self.group.wake_at) is not None and wake_at <= until:
            self.now = max(self.now, wake_at)
            self.handle(events.Tick())
        self.now = until

    @rule(seconds=st.sampled_from([0.3, 1]))
    def everybody_listens_for_a_while(self, seconds: float) -> None:
        for _ in range(2):
            self.wait(seconds)
            for actor in list(self.actors):
                self.listen(actor)
                self.let_go(actor)
        for actor in list(self.actors):
            self.listen(actor)

    @rule(at_once=st.booleans())
    def the_leader_dies_or_is_about_to_before_it_writes(self, at_once: bool) -> None:
        if at_once:
            self.lead()
        else:
            self.dying = True

    @rule(offset=st.none() | st.integers(0, 5))
    def somebody_resets_the_group(self, offset: int | None) -> None:
        offsets = {} if offset is None else {n: min(offset, end) for n, end in self.ends.items()}
        self.handle(events.Reset(start=EARLIEST, horizon=len(self.segments), offsets=offsets, at_us=2))

    # --- what always holds
    @invariant()
    def owners_are_members(self) -> None:
        owners = {owner.member for owner in self.record.owners.values()}
        assert owners <= self.record.members.keys()
        assert len(self.record.members) <= LIMITS.members_max

    @invariant()
    def memory_agrees_with_what_is_persisted(self) -> None:
        assert self.group.record == self.record
        assert self.group.progress.committed == self.committed

    def teardown(self) -> None:
        self.dying = False
        for _ in range(30):
            for actor in list(self.actors):
                if actor.stream is None:
                    self.open(actor)
                self.listen(actor)
                self.let_go(actor)
            self.wait(SESSION_S + 1)
        living = {a.name: a for a in self.actors if a.stream is not None}
        assert self.group.connected == living.keys() == self.record.members.keys()
        due = self.group.progress.due() if living else []
        assert sorted(self.record.owners) == due
        for number, owner in self.record.owners.items():
            assert not owner.revoking
            assert living[owner.member].believes[number] == owner.generation
        shares = [len(a.believes) for a in living.values()]
        assert max(shares, default=0) - min(shares, default=0) <= 1
        assert self.group.handle(events.Tick(), self.now) == events.Outcome()
        assert self.group.wake_at is None


Members.TestCase.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
TestMembers = Members.TestCase
