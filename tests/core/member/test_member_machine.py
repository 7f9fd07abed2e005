"""A member under any order of rows, users, handlers, rejections, assignments and answers.

Invariants, of what the user sees and of what is committed:

- a record is with one user at a time, and is not delivered again after its acknowledgement;
- later records of a key wait for those that were rejected or sent to the dead letters; handlers get one per key;
- nothing of a revoked segment is delivered; an acknowledgement counts in the ownership of its delivery;
- a committed position has only acknowledged records below it, and never falls within a generation;
- the count of unacknowledged records is never too low, and exact after counting; acknowledged rows are
  dropped;
- the byte of each row is its state for the user;
- in the end every record that arrived is acknowledged, and revoked segments are released.
"""

from collections import defaultdict

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from seaweedmq.core.member.acks import ACKED, DEAD_LETTER, IN_FLIGHT, NEW, WAITING
from seaweedmq.core.member.held_segment import HeldSegment
from seaweedmq.core.member.record_dispatch import Bounds
from seaweedmq.model.messages.groups import Ownership
from tests.core.member.plain_member import BYTES_PER_ROW, Keys, PlainMember, Record, ownership

SEGMENTS = range(3)
PICK = st.integers(0, 1_000)
KEYS = st.lists(st.sampled_from([b"a", b"b", b"c", None]), min_size=1, max_size=6).map(tuple)
Held = HeldSegment[Keys, Record]


class MemberLife(RuleBasedStateMachine):
    """One member, and its coordinator, broker and user."""

    @initialize(
        has_handlers=st.booleans(),
        limit=st.sampled_from([None, None, 1, 5, 20]),
        deliveries_max=st.sampled_from([None, None, 1, 2]),
        unacked_max=st.sampled_from([1, 3, 10, 100]),
        rows_max=st.sampled_from([1, 10, 100]),
    )
    def join(
        self, has_handlers: bool, limit: int | None, deliveries_max: int | None, unacked_max: int, rows_max: int
    ) -> None:
        self.member = PlainMember(
            Bounds(
                limit=limit,
                deliveries_max=deliveries_max,
                unacked_max=unacked_max,
                unacked_bytes_max=rows_max * BYTES_PER_ROW,
            )
        )
        self.limit, self.deliveries_max, self.has_handlers = limit, deliveries_max, has_handlers
        if has_handlers:
            self.member.dispatch.hand_to_handlers(True, 0.0)
        self.generation = 0
        self.given: dict[int, Ownership] = {}
        self.kept: dict[tuple[int, int], int] = {}
        """Segment and generation -> offset that the coordinator stores."""
        self.number = 0
        self.under_way: list[tuple[int, int, int]] = []
        self.ends: dict[Held, int] = {}
        self.begins: dict[Held, int] = {}
        self.keys: dict[tuple[Held, int], bytes | None] = {}
        self.with_user: dict[tuple[Held, int], Record] = {}
        self.with_handlers: dict[tuple[Held, int], Record] = {}
        self.acked: set[tuple[Held, int]] = set()
        self.refusals: dict[tuple[Held, int], int] = defaultdict(int)
        self.refused: list[Record] = []
        self.deliveries = 0
        self.assign(set(SEGMENTS), False)

    # --- the coordinator
    @rule(segments=st.sets(st.sampled_from(SEGMENTS)), anew=st.booleans())
    def assign(self, segments: set[int], anew: bool) -> None:
        self.generation += 1
        for segment in SEGMENTS:
            if segment not in segments:
                self.given.pop(segment, None)
            elif segment not in self.given or anew:
                kept = max((offset for (of, _), offset in self.kept.items() if of == segment), default=0)
                self.given[segment] = ownership(segment, self.generation, kept)
        self.member.assign(*self.given.values())

    @rule(is_time=st.booleans())
    def maintain(self, is_time: bool) -> None:
        instructions = self.member.maintain(is_time)
        for segment, generation in instructions.release.items():
            assert all(
                (held.segment, held.generation) != (segment, generation)
                for held, _ in [*self.with_user, *((g.record.origin.assigned, 0) for g in self.member.given_up)]
            ), "the release waits for records in flight"
            assert segment not in [segment for segment, _, _ in self.under_way]

    @rule()
    def send(self) -> None:
        number, positions = self.member.commit()
        if not positions:
            return
        self.number = number
        self.under_way = [(p.segment, p.generation, p.offset) for p in positions]
        for position in positions:
            held = self.held_as(position.segment, position.generation)
            below = range(self.begins.get(held, position.offset), position.offset)
            assert all((held, offset) in self.acked for offset in below)
            assert all(offset >= position.offset for offset in position.deliveries)

    def held_as(self, segment: int, generation: int) -> Held:
        held = self.member.dispatch.assigned[segment]
        assert held.generation == generation
        return held

    @precondition(lambda self: self.under_way)
    @rule(refuses=st.booleans())
    def answer(self, refuses: bool) -> None:
        refused = {}
        for segment, generation, offset in self.under_way:
            current = self.given.get(segment)
            if refuses and (current is None or current.generation != generation):
                refused[segment] = "not yours"
                continue
            assert offset >= self.kept.get((segment, generation), 0)
            self.kept[segment, generation] = offset
        self.under_way = []
        self.member.answer(self.number, refused)

    @rule()
    def lose_stream(self) -> None:
        self.under_way = []
        self.member.holdings.commits.lost()

    # --- the broker
    @precondition(lambda self: self.readable())
    @rule(which=PICK, keys=KEYS)
    def arrive(self, which: int, keys: Keys) -> None:
        held = self.readable()[which % len(self.readable())]
        first = self.ends.setdefault(held, held.start.value or 0)
        self.begins.setdefault(held, first)
        self.ends[held] += len(keys)
        self.keys |= {(held, first + at): key for at, key in enumerate(keys)}
        self.member.read(held, first, keys)

    def readable(self) -> list[Held]:
        return [held for held in self.member.dispatch.assigned.values() if not held.is_revoked]

    # --- the user
    @precondition(lambda self: not self.has_handlers)
    @rule()
    def take(self) -> None:
        record = self.member.take()
        if record is not None:
            self.is_handed(record)

    @precondition(lambda self: not self.has_handlers)
    @rule()
    def take_rows(self) -> None:
        for record in self.member.take_rows():
            self.is_handed(record)

    @precondition(lambda self: self.has_handlers)
    @rule()
    def begin_handler(self) -> None:
        record = self.member.take_for_handler()
        if record is not None:
            held = record.origin.assigned
            busy = [each.key for each in self.with_handlers.values() if each.origin.assigned is held]
            assert record.key is None or record.key not in busy, "one of a key at a time"
            assert (held, record.offset) not in self.with_handlers
            self.is_handed(record)
            self.with_handlers[held, record.offset] = record

    def is_handed(self, record: Record) -> None:
        held, offset = record.origin.assigned, record.offset
        assert not held.is_revoked
        assert self.keys[held, offset] == record.key
        assert (held, offset) not in self.with_user, "one user at a time"
        assert (held, offset) not in self.acked
        if record.key is not None:
            for span in held.ledger.spans:
                for earlier in range(span.first, min(span.end, offset)):
                    if self.keys[held, earlier] == record.key:
                        assert span.state(earlier) in (ACKED, IN_FLIGHT), "a waiting record blocks its key"
        if self.deliveries_max is not None:
            assert self.refusals[held, offset] < self.deliveries_max
        self.with_user[held, offset] = record
        self.deliveries += 1
        assert self.limit is None or self.deliveries <= self.limit

    def pick(self, which: int) -> Record:
        return list(self.with_user.values())[which % len(self.with_user)]

    @precondition(lambda self: self.with_user)
    @rule(which=PICK)
    def ack(self, which: int) -> None:
        record = self.pick(which)
        self.member.ack(record)
        self.acked.add((record.origin.assigned, record.offset))
        del self.with_user[record.origin.assigned, record.offset]

    @precondition(lambda self: self.with_user)
    @rule(which=PICK)
    def ack_rows(self, which: int) -> None:
        """A batch, or a part of one: adjacent rows that the user has."""
        record = self.pick(which)
        held, first = record.origin.assigned, record.offset
        if self.member.dispatch.assigned.get(held.segment) is not held:
            return
        end = first
        while self.with_user.pop((held, end), None) is not None:
            self.acked.add((held, end))
            end += 1
        self.member.dispatch.ack(held.segment, range(first, end))

    @precondition(lambda self: self.waiting())
    @rule(which=PICK)
    def ack_after_all(self, which: int) -> None:
        """The user rejects a record, and acknowledges it before its redelivery."""
        record = self.waiting()[which % len(self.waiting())]
        self.member.ack(record)
        self.acked.add((record.origin.assigned, record.offset))

    def waiting(self) -> list[Record]:
        return [record for record in self.refused if record.origin.span.state(record.offset) == WAITING]

    @precondition(lambda self: self.with_user)
    @rule(which=PICK, delay_s=st.integers(0, 3))
    def reject(self, which: int, delay_s: int) -> None:
        """Acknowledge in a handler, before it ends."""
        record = self.pick(which)
        self.member.reject(record, delay_s)
        self.is_refused(record)

    def is_refused(self, record: Record) -> None:
        at = record.origin.assigned, record.offset
        del self.with_user[at]
        self.refusals[at] += 1
        self.refused.append(record)

    @precondition(lambda self: self.with_handlers)
    @rule(which=PICK, raises=st.booleans())
    def end_handler(self, which: int, raises: bool) -> None:
        at = list(self.with_handlers)[which % len(self.with_handlers)]
        record = self.with_handlers.pop(at)
        if raises:
            self.member.reject(record, 1.0, "raised")
            if at in self.with_user:
                self.is_refused(record)
        self.member.handler_ended(record)
        if self.with_user.pop(at, None) is not None:
            self.acked.add(at)

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.member.now += seconds

    @precondition(lambda self: self.member.given_up)
    @rule()
    def keep_letter(self) -> None:
        given_up = self.member.keep_letter()
        at = given_up.record.origin.assigned, given_up.record.offset
        assert given_up.deliveries == self.refusals[at] == self.deliveries_max
        self.acked.add(at)

    # --- what always holds
    @invariant()
    def states_are_true(self) -> None:
        letters = {(g.record.origin.assigned, g.record.offset) for g in self.member.given_up}
        dispatch = self.member.dispatch
        ready = {(record.origin.assigned, record.offset) for record in (*dispatch.ready, *dispatch.admitted)}
        for held in self.member.dispatch.assigned.values():
            for span in held.ledger.spans:
                assert len(span.states) == span.end - span.first
                for offset in range(span.first, span.end):
                    at, state = (held, offset), span.state(offset)
                    assert (state == NEW) == (offset >= span.first + span.new_at)
                    assert (state == ACKED) == (at in self.acked)
                    assert (state == DEAD_LETTER) == (at in letters)
                    if at in self.with_user:
                        assert state == IN_FLIGHT
                    elif state == IN_FLIGHT:
                        assert at in ready
                    elif at not in ready:
                        assert state in (NEW, WAITING, ACKED, DEAD_LETTER)

    @invariant()
    def what_is_counted_is_held(self) -> None:
        unacked = self.member.dispatch.unacked
        records, size_bytes = self.held()
        assert unacked.records >= records
        assert unacked.size_bytes >= size_bytes
        assert records <= unacked.records_max

    def held(self) -> tuple[int, int]:
        """Records that were delivered and not acknowledged, and bytes of the frames that are held."""
        records = size_bytes = 0
        for held in self.member.dispatch.assigned.values():
            for span in held.ledger.spans:
                assert span.rows is not None
                records += sum(state not in (NEW, ACKED) for state in span.states)
                size_bytes += span.size_bytes
        return records, size_bytes

    @rule()
    def count(self) -> None:
        """A member waits only for events that can come, and receives every acknowledgement."""
        dispatch = self.member.dispatch
        if not dispatch.unacked.check():
            return
        records, size_bytes = self.held()
        if dispatch.unacked.size_bytes > dispatch.unacked.bytes_max:
            assert dispatch.unacked.size_bytes == size_bytes
        else:
            assert dispatch.unacked.records == records == dispatch.unacked.records_max
        assert all(held.is_watched for held in dispatch.assigned.values())

    # --- the end
    def teardown(self) -> None:
        for _ in range(2_000):
            while self.with_user and not self.with_handlers:
                self.ack(0)
            while self.with_handlers:
                self.end_handler(0, False)
            while self.member.given_up:
                self.keep_letter()
            if not self.is_busy():
                return
            self.wait(3)
            self.begin_handler() if self.has_handlers else self.take()
            self.maintain(True)
            self.send()
            if self.under_way:
                self.answer(False)
        raise AssertionError("something was forgotten")

    def is_busy(self) -> bool:
        if self.member.dispatch.left == 0:
            return False
        dispatch = self.member.dispatch
        if any(held.is_revoked for held in dispatch.assigned.values()) or self.with_handlers or self.member.given_up:
            return True
        ends = {held: end for held, end in self.ends.items() if dispatch.assigned.get(held.segment) is held}
        return any(held.ledger.position() != end for held, end in ends.items())


TestMemberLife = MemberLife.TestCase
TestMemberLife.settings = settings(max_examples=120, stateful_step_count=60, deadline=None)
