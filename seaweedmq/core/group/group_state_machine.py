"""The coordinator of one group and one topic, as a pure state machine.

An event and the time go in; the state to persist and the replies after it come out. Members:

| member | event | result |
|---|---|---|
| unknown | opened | connected; rejected if there are too many |
| connected | its stream broke | disconnected, expected back within the session timeout |
| connected, disconnected | opened by the same incarnation | connected, by the new stream |
| connected, disconnected | opened by another incarnation | connected; the earlier one is fenced and loses everything |
| connected, disconnected | opened by a fenced incarnation | that stream ends as fenced; nothing changes |
| connected | left | unknown; its segments are free |
| disconnected | session timeout passed | unknown; it loses everything |

Segments that are due (``core.group.group_progress``):

| segment | event | result |
|---|---|---|
| free | assigned | owned by its target (``core.group.assignor``), in a new generation |
| owned | assigned to another target, or finished | revoking: its owner must release it |
| owned, revoking | reset | revoking and void: its owner's commits are rejected |
| owned, revoking | released by its owner; its owner left | free |
| revoking | its owner reconnected without it | free |
| owned, revoking | its owner was fenced, or its session or the revocation timed out | free, and one crash more |

A release counts only in the generation of the ownership: another generation belongs to an ownership that has ended.

Invariants: a segment has one owner, which is a member. No member gets a segment before its owner released or lost it. A
withdrawn ownership never returns in the same generation. A committed offset falls only by a reset.
"""

from collections.abc import Mapping

from seaweedmq.core.group import events
from seaweedmq.core.group.assignor import assign
from seaweedmq.core.group.group_progress import GroupProgress
from seaweedmq.core.group.rejections import fenced, reject_commit, too_many_members
from seaweedmq.errors import SeaweedMQError, StaleMetadata
from seaweedmq.model.group_record import (
    FORMER_INCARNATIONS_MAX,
    CommittedOffset,
    GroupRecord,
    MemberRecord,
    SegmentOwner,
)
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted, Ownership, Position


class GroupStateMachine:
    """The state of one group and topic, ahead of the persisted state by the outcomes in progress."""

    def __init__(
        self, record: GroupRecord, committed: Mapping[int, CommittedOffset], limits: events.GroupLimits, now: float
    ) -> None:
        self.progress = GroupProgress(record.start, record.horizon, committed)
        self._limits = limits
        self.topic_uid = record.topic_uid
        self._generation = record.generation
        self._members = dict(record.members)
        self._owners = dict(record.owners)
        self._crashes = dict(record.crashes)
        self._streams: dict[str, int] = {}
        """Stream of each connected member; the others are in ``_disconnected``."""
        self._member_by_stream: dict[int, str] = {}
        """Member of each stream, the inverse of ``_streams``."""
        self._disconnected = dict.fromkeys(self._members, now + limits.return_timeout_s)
        """Disconnected member -> deadline of its return."""
        self._revoking = {s: now + limits.revoking_s for s, owner in self._owners.items() if owner.revoking}
        """Segment -> time when its owner loses it."""
        self._sent_assignments: dict[str, tuple[tuple[int, int], ...]] = {}
        """Connected member -> segments and generations of its last sent assignment."""
        self._assign_at: float | None = now + limits.rebalance_delay_s
        self._dirty = False
        self._committed: dict[int, CommittedOffset | None] = {}
        self._replies: list[events.Reply | events.StreamEnd] = []

    @property
    def record(self) -> GroupRecord:
        """The state that the next leader needs."""
        return GroupRecord(
            topic_uid=self.topic_uid,
            start=self.progress.start,
            horizon=self.progress.horizon,
            generation=self._generation,
            members=dict(self._members),
            owners=dict(sorted(self._owners.items())),
            crashes=dict(sorted(self._crashes.items())),
        )

    @property
    def members(self) -> Mapping[str, MemberRecord]:
        """The members, connected or expected to reconnect."""
        return self._members

    @property
    def connected(self) -> frozenset[str]:
        """The members that have a stream."""
        return frozenset(self._streams)

    @property
    def owned(self) -> frozenset[int]:
        """The segments that have an owner."""
        return frozenset(self._owners)

    @property
    def loses_at(self) -> float | None:
        """The time when a member will have lost something, unless it acts before."""
        return min([*self._disconnected.values(), *self._revoking.values()], default=None)

    @property
    def wake_at(self) -> float | None:
        """The time of the next ``Tick``, in steady seconds; None: no timer is set."""
        return min((t for t in (self.loses_at, self._assign_at) if t is not None), default=None)

    def handle(self, event: events.Event, now: float) -> events.Outcome:
        """Handle one event and return its outcome; ``now`` is in seconds on a steady clock."""
        match event:
            case events.Opened():
                self._open(event, now)
            case events.StreamLost(stream):
                self._disconnect(stream, now)
            case events.MemberLeft(stream):
                self._leave(stream, now)
            case events.Released(stream, segments):
                self._release(stream, segments, now)
            case events.Committing(stream):
                self._commit(stream, event, now)
            case events.Changed():
                self._change(event, now)
            case events.Learned(ends):
                self.progress.learn_ends(ends)
            case events.Tick():
                self._expire(now)
            case events.Reset():
                self._reset(event, now)
            case events.Deleted(error):
                for member in list(self._streams):
                    self._dismiss(member, error)
        if self._assign_at is not None and self._assign_at <= now:
            self._assign(now)
        if self._dirty or len(self._sent_assignments) < len(self._streams):
            self._send_assignments()
        return self._collect()

    def _open(self, event: events.Opened, now: float) -> None:
        member = event.member
        known = self._members.get(member)
        if known is None:
            if len(self._members) >= self._limits.members_max:
                self._replies.append(events.StreamEnd(event.stream, too_many_members(self._limits.members_max)))
                return
            self._members[member] = MemberRecord(incarnation=event.incarnation, client=event.client)
            self._dirty = True
            self._assign_later(now)
        elif event.incarnation in known.former:
            self._replies.append(events.StreamEnd(event.stream, fenced(member)))
            return
        elif event.incarnation != known.incarnation:
            self._dismiss(member, fenced(member))
            self._lose_all(member, now)
            former = (known.incarnation, *known.former)[:FORMER_INCARNATIONS_MAX]
            self._members[member] = MemberRecord(incarnation=event.incarnation, client=event.client, former=former)
            self._dirty = True
        else:
            self._dismiss(member, StaleMetadata(f"member {member} opened another stream: this one is over"))
            for segment, owner in self._owned(member).items():
                if owner.revoking and event.held.get(segment) != owner.generation:
                    self._free(segment, now)
        self._disconnected.pop(member, None)
        self._streams[member] = event.stream
        self._member_by_stream[event.stream] = member

    def _disconnect(self, stream: int, now: float) -> None:
        member = self._detach_stream(stream)
        if member is not None:
            self._disconnected[member] = now + self._limits.return_timeout_s

    def _leave(self, stream: int, now: float) -> None:
        member = self._detach_stream(stream)
        if member is not None:
            self._replies.append(events.StreamEnd(stream, None))
            self._forget(member, now)
            for segment in self._owned(member):
                self._free(segment, now)

    def _expire(self, now: float) -> None:
        for member in [m for m, until in self._disconnected.items() if until <= now]:
            self._forget(member, now)
            self._lose_all(member, now)
        for segment in [s for s, until in self._revoking.items() if until <= now]:
            self._lose(segment, now)

    def _detach_stream(self, stream: int) -> str | None:
        """Remove a stream; return its member, or None if the stream has already ended."""
        member = self._member_by_stream.pop(stream, None)
        if member is not None:
            del self._streams[member]
            self._sent_assignments.pop(member, None)
        return member

    def _dismiss(self, member: str, error: SeaweedMQError) -> None:
        """End the member's stream, if it has one."""
        stream = self._streams.get(member)
        if stream is not None:
            self._detach_stream(stream)
            self._replies.append(events.StreamEnd(stream, error))

    def _forget(self, member: str, now: float) -> None:
        self._disconnected.pop(member, None)
        del self._members[member]
        self._dirty = True
        self._assign_later(now)

    def _owned(self, member: str) -> dict[int, SegmentOwner]:
        return {s: owner for s, owner in self._owners.items() if owner.member == member}

    def _release(self, stream: int, segments: Mapping[int, int], now: float) -> None:
        member = self._member_by_stream.get(stream)
        for segment, generation in segments.items():
            owner = self._owners.get(segment)
            if owner is not None and (owner.member, owner.generation) == (member, generation):
                self._free(segment, now)

    def _free(self, segment: int, now: float) -> None:
        del self._owners[segment]
        self._revoking.pop(segment, None)
        self._dirty = True
        self._assign_now(now)

    def _lose(self, segment: int, now: float) -> None:
        """Free a segment of a lost owner, and count a crash if there was something to read that may be the cause."""
        if self.progress.behind(segment):
            self._crashes[segment] = self._crashes.get(segment, 0) + 1
        self._free(segment, now)

    def _lose_all(self, member: str, now: float) -> None:
        for segment in self._owned(member):
            self._lose(segment, now)

    def _revoke(self, segment: int, now: float, *, void: bool = False) -> None:
        owner = self._owners[segment]
        self._owners[segment] = SegmentOwner(owner.member, owner.generation, revoking=True, void=void or owner.void)
        self._revoking.setdefault(segment, now + self._limits.revoking_s)
        self._dirty = True

    def _assign_later(self, now: float) -> None:
        """Assign after the rebalance delay: further members may join or leave soon."""
        self._assign_now(now + self._limits.rebalance_delay_s)

    def _assign_now(self, now: float) -> None:
        """Assign now, unless a time is already set."""
        if self._assign_at is None:
            self._assign_at = now

    def _assign(self, now: float) -> None:
        self._assign_at = None
        due = self.progress.due()
        settled = {s: owner.member for s, owner in self._owners.items() if not owner.revoking}
        target = assign(due, self._members, settled)
        unwanted = [s for s, member in settled.items() if target.get(s) != member]
        free = [s for s in target if s not in self._owners]
        if unwanted or free:
            self._generation += 1
            self._dirty = True
        for segment in unwanted:
            self._revoke(segment, now)
        for segment in free:
            self._owners[segment] = SegmentOwner(target[segment], self._generation)

    def _commit(self, stream: int, event: events.Committing, now: float) -> None:
        member = self._member_by_stream.get(stream)
        if member is None:
            return  # the stream has already ended
        refused = {}
        for position in event.commit.positions:
            segment = position.segment
            why = reject_commit(member, position, self._owners.get(segment), self.progress.end(segment))
            if why:
                refused[segment] = why
            else:
                self._keep(position, event.at_us, now)
        self._replies.append(events.Reply(stream, GroupCommitted(event.commit.number, refused)))

    def _keep(self, position: Position, at_us: int, now: float) -> None:
        segment, offset = position.segment, position.offset
        before = self.progress.committed.get(segment)
        if before is not None and offset < before.offset:
            return
        advanced = offset > self.progress.position(segment)
        kept = CommittedOffset(offset=offset, deliveries=dict(position.deliveries), at_us=at_us)
        self.progress.committed[segment] = self._committed[segment] = kept
        # A count of deliveries for the first record includes the crashes in the owner's assignment.
        if segment in self._crashes and (advanced or offset in position.deliveries):
            del self._crashes[segment]
            self._dirty = True
        if self.progress.finished(segment):
            self._assign_now(now)

    def _change(self, event: events.Changed, now: float) -> None:
        for segment in self.progress.learn(event.segments, event.next_segment):
            self._committed[segment] = None
        for segment in [s for s in self._owners if s not in event.segments and s < event.next_segment]:
            self._free(segment, now)
        for segment in [s for s in self._crashes if s not in event.segments]:
            del self._crashes[segment]
        self._assign_now(now)

    def _reset(self, event: events.Reset, now: float) -> None:
        self._committed.update(dict.fromkeys(self.progress.committed))
        self.progress.start, self.progress.horizon = event.start, event.horizon
        self.progress.committed = {
            segment: CommittedOffset(offset=offset, deliveries={}, at_us=event.at_us)
            for segment, offset in event.offsets.items()
        }
        self._committed.update(self.progress.committed)
        self._crashes.clear()
        self._generation += 1
        self._dirty = True
        for segment in self._owners:
            self._revoke(segment, now, void=True)
        self._assign_now(now)

    def _send_assignments(self) -> None:
        """Send each member its assignment if it differs from the last one sent."""
        owned: dict[str, list[tuple[int, int]]] = {member: [] for member in self._streams}
        for segment, owner in sorted(self._owners.items()):
            if owner.member in owned and not owner.revoking:
                owned[owner.member].append((segment, owner.generation))
        for member, segments in owned.items():
            if self._sent_assignments.get(member) != tuple(segments):
                self._sent_assignments[member] = tuple(segments)
                ownerships = tuple(self._ownership(segment, generation) for segment, generation in segments)
                assignment = GroupAssignment(
                    generation=self._generation, owned=ownerships, trust_s=self._limits.trust_s
                )
                self._replies.append(events.Reply(self._streams[member], assignment))

    def _ownership(self, segment: int, generation: int) -> Ownership:
        committed = self.progress.committed.get(segment)
        return Ownership(
            segment=segment,
            generation=generation,
            start=self.progress.begin(segment),
            deliveries=committed.deliveries if committed else {},
            crashes=self._crashes.get(segment, 0),
        )

    def _collect(self) -> events.Outcome:
        outcome = events.Outcome(
            record=self.record if self._dirty else None, committed=self._committed, replies=tuple(self._replies)
        )
        self._dirty, self._committed, self._replies = False, {}, []
        return outcome
