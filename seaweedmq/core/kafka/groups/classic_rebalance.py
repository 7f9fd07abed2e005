"""The rebalance of a classic group: from its cause to an assignment that every member has.

| state | event | result |
|---|---|---|
| Empty | a member joined | PreparingRebalance; the first members wait for others: the initial delay |
| PreparingRebalance | the initial delay ended, another member joined meanwhile | repeats, up to a rebalance timeout |
| PreparingRebalance | all members joined, or the delay or the rebalance timeout ended | see below |
| CompletingRebalance | the leader's SyncGroup | Stable; written; all waiting members get their assignments |
| CompletingRebalance, Stable | the rebalance timeout ended, a member did not sync | is removed; PreparingRebalance |
| CompletingRebalance, Stable | a cause of a rebalance | PreparingRebalance; waiting members get an error |
| any | deleted | Dead |

At the end of a join phase, members that did not join are removed, unless they are static. If members are left, the
group enters CompletingRebalance in the next generation, and all waiting members get it. If only static members are left
that did not join, it waits for another rebalance timeout, or for their sessions to end. If no member is left, the group
is Empty in the next generation, which is written.

The generation rises when a join phase ends, and only a complete generation is written. A coordinator that takes over
knows the last one, in which members continue without noticing.
"""

from collections.abc import Mapping

from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.core.kafka.groups.classic_members import Member, Members, loaded_member
from seaweedmq.core.kafka.groups.subscription import subscribed_topics
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import GroupState, GroupValue

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState
CONSUMER = "consumer"
"""Protocol type whose metadata names topics."""
POSTPONED_MS_MIN = 1_000
"""Shortest next wait after a join phase without joins, even if the members requested a shorter rebalance timeout."""

TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY}),
    COMPLETING: frozenset({STABLE, PREPARING}),
    STABLE: frozenset({PREPARING}),
    DEAD: frozenset(),
}


NOTHING = events.GroupOutcome()


class ClassicRebalance:
    """State of a group and the outcome of the current event, whose time is ``now`` and ``at_ms``."""

    def __init__(self, limits: events.CoordinatorLimits, now: float, value: GroupValue | None) -> None:
        self.limits = limits
        self.now = now
        self.at_ms = 0
        self.members = Members()
        self.state = EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.since_ms: int | None = None
        self.since_s: float | None = None
        """Steady time of ``since_ms``, seconds; None: under an earlier coordinator."""
        self.written = value
        """Last value returned for writing."""
        self.topics: frozenset[str] | None = None
        """Topics of the consumers' subscriptions; None: unknown, or no consumers."""
        self._initial_delay_ms = 0
        self._initial_left_ms: int | None = None
        """Remaining extension of the initial delay; None: not an initial join phase."""
        self._has_newcomer = False
        """Whether a member joined during the initial delay."""
        self._is_dirty = False
        self._replies: list[events.Reply] = []
        self._timers: dict[tuple[events.Timer, str], float | None] = {}
        if value is not None:
            self._load(value)

    def _load(self, value: GroupValue) -> None:
        self.generation, self.protocol, self.since_ms = value.generation, value.protocol, value.since_ms
        for member in value.members:
            self.members.add(loaded_member(member, value.protocol), value.protocol_type or "")
        self.members.protocol_type = value.protocol_type or None
        self.members.leader = value.leader or self.members.leader
        self.state = STABLE if value.members else EMPTY
        self.topics = self._subscribed()

    def collect(self) -> events.GroupOutcome:
        """Return and clear the outcome of the event."""
        if not (self._is_dirty or self._replies or self._timers):
            return NOTHING
        outcome = events.GroupOutcome(
            value=self.written if self._is_dirty else None, replies=tuple(self._replies), timers=self._timers
        )
        self._is_dirty, self._replies, self._timers = False, [], {}
        return outcome

    def reply(self, reply: events.Reply) -> None:
        """Add a reply to the outcome."""
        self._replies.append(reply)

    def watch(self, member: Member) -> None:
        """Restart the session of a live member."""
        self.watch_id(member.id, member.session_timeout_ms)

    def watch_id(self, member: str, timeout_ms: int) -> None:
        """Set the session timer of a member id."""
        self._set(events.Timer.SESSION, timeout_ms, member)

    def unwatch(self, member: str) -> None:
        """Cancel the session timer of a member id."""
        self._timers[events.Timer.SESSION, member] = None

    def join(self, member: Member, token: int) -> None:
        """Make a member wait for the end of the join phase; begin the phase if necessary."""
        superseded = self.members.park_join(member, token)
        if superseded is not None:
            self.reply(events.JoinReply(token=superseded, member=member.id, error=Code.REBALANCE_IN_PROGRESS))
        self.rebalance()

    def admit(self, member: Member, protocol_type: str, token: int) -> None:
        """Add a new member and let it join."""
        self._has_newcomer = self._has_newcomer or self._initial_left_ms is not None
        self.members.add(member, protocol_type)
        self.watch_id(member.id, self.limits.new_member_join_ms)
        self.join(member, token)

    def remove(self, member: Member, error: Code = Code.UNKNOWN_MEMBER_ID) -> None:
        """Remove a member, ending its requests with an error; the caller continues the rebalance of the others."""
        self.fail_waiting(member, error)
        self.members.remove(member)
        self.unwatch(member.id)

    def fail_waiting(self, member: Member, error: Code) -> None:
        """End a member's waiting requests with an error."""
        token = self.members.take_join(member)
        if token is not None:
            kept_id = member.id if error is Code.FENCED_INSTANCE_ID else ""
            self.reply(events.JoinReply(token=token, member=kept_id, error=error))
        self._answer_sync(member, error)

    def rebalance(self) -> None:
        """Begin a join phase, or check whether the current one is complete."""
        if self.state is PREPARING:
            self.maybe_end_join_phase()
        else:
            self._begin_join_phase()

    def maybe_end_join_phase(self) -> None:
        """End the join phase if all members have joined; for use after a join or a removal."""
        if self.state is PREPARING and self._initial_left_ms is None and self.members.have_all_joined:
            self._end_join_phase()

    def _begin_join_phase(self) -> None:
        if self.state is COMPLETING:
            self._withdraw(Code.REBALANCE_IN_PROGRESS)
        self.members.unsynced.clear()
        self._cancel(events.Timer.SYNC)
        was_empty = self.state is EMPTY
        self._set_state(PREPARING)
        if was_empty:
            self._initial_delay_ms = self.limits.rebalance_delay_ms
            self._initial_left_ms = max(self.members.rebalance_timeout_ms - self._initial_delay_ms, 0)
            self._has_newcomer = False
            self._set(events.Timer.JOIN, self._initial_delay_ms)
        elif self.members.have_all_joined:
            self._end_join_phase()
        else:
            self._set(events.Timer.JOIN, self.members.rebalance_timeout_ms)

    def end_wait_for_joins(self) -> None:
        """Handle the timer of the join phase."""
        if self.state is not PREPARING:
            return
        if self._initial_left_ms and self._has_newcomer:
            before_ms = self._initial_delay_ms
            self._initial_delay_ms = min(self.limits.rebalance_delay_ms, self._initial_left_ms)
            self._initial_left_ms = max(self._initial_left_ms - before_ms, 0)
            self._has_newcomer = False
            self._set(events.Timer.JOIN, self._initial_delay_ms)
        else:
            self._end_join_phase()

    def _end_join_phase(self) -> None:
        self._initial_left_ms = None
        self._cancel(events.Timer.JOIN)
        for member in [m for m in self.members if m.joining is None and m.instance is None]:
            self.remove(member)
        if len(self.members) and not self.members.elect():
            self._set(events.Timer.JOIN, max(self.members.rebalance_timeout_ms, POSTPONED_MS_MIN))
            return
        self.generation += 1
        if not len(self.members):
            self.protocol = None
            self._set_state(EMPTY)
            self.topics = self._subscribed()
            self.write()
            return
        self.protocol = self.members.select_protocol()
        self._set_state(COMPLETING)
        self.topics = self._subscribed()
        for member in self.members:
            token = self.members.take_join(member)
            if token is not None:
                self.reply_generation(member, token)
            member.is_new = False
            self.members.unsynced.add(member.id)
            self.watch(member)
        self._set(events.Timer.SYNC, self.members.rebalance_timeout_ms)

    def reply_generation(
        self, member: Member, token: int, *, skip_assignment: bool = False, leader: str | None = None
    ) -> None:
        """Reply to a JoinGroup with the current generation.

        The leader's reply lists all members, since it assigns. ``leader`` replaces the leader's id in the reply.
        """
        leader = leader or self.members.leader or ""
        is_leader = member.id == leader
        self.reply(
            events.JoinReply(
                token=token,
                member=member.id,
                generation=self.generation,
                protocol_type=self.members.protocol_type,
                protocol=self.protocol,
                leader=leader,
                skip_assignment=skip_assignment and is_leader,
                members=self.members.to_leader(self.protocol) if is_leader else (),
            )
        )

    def sync(self, member: Member, token: int) -> None:
        """Make a member wait for its assignment, or reply with it."""
        if member.syncing is not None:
            self._answer_sync(member, Code.REBALANCE_IN_PROGRESS)
        member.syncing = token
        self.members.unsynced.discard(member.id)
        if not self.members.unsynced:
            self._cancel(events.Timer.SYNC)
        if self.state is STABLE:
            self._answer_sync(member)
            self.watch(member)

    def assign(self, assignments: Mapping[str, bytes]) -> None:
        """Apply the leader's assignment: a member that it omits gets an empty one; non-members are ignored."""
        if sum(len(assignments.get(member.id, b"")) for member in self.members) > self._assignable_bytes:
            self._withdraw(Code.UNKNOWN_SERVER_ERROR)
            self.rebalance()
            return
        for member in self.members:
            self.members.assign(member, assignments.get(member.id, b""))
        self._set_state(STABLE)
        self.write()
        self._answer_syncs()

    @property
    def _assignable_bytes(self) -> int:
        taken = self.members.size_bytes - sum(len(member.assignment) for member in self.members)
        return self.limits.group_bytes_max - taken

    def end_wait_for_syncs(self) -> None:
        """Handle the timer of the sync phase."""
        if self.state not in {COMPLETING, STABLE} or not self.members.unsynced:
            return
        for member in [m for m in self.members if m.id in self.members.unsynced]:
            self.remove(member)
        self.rebalance()

    def _withdraw(self, error: Code) -> None:
        """End the generation without an assignment."""
        for member in self.members:
            self.members.assign(member, b"")
        self._answer_syncs(error)

    def _answer_syncs(self, error: Code = Code.NONE) -> None:
        for member in self.members:
            if self._answer_sync(member, error):
                self.watch(member)

    def _answer_sync(self, member: Member, error: Code = Code.NONE) -> bool:
        token, member.syncing = member.syncing, None
        if token is None:
            return False
        if error is Code.NONE:
            self.reply(
                events.SyncReply(
                    token=token,
                    protocol_type=self.members.protocol_type,
                    protocol=self.protocol,
                    assignment=member.assignment,
                )
            )
        else:
            self.reply(events.SyncReply(token=token, error=error))
        return True

    def write(self) -> None:
        """Set the current, complete generation as the value to write."""
        self.written = GroupValue(
            generation=self.generation,
            protocol_type=self.members.protocol_type,
            protocol=self.protocol,
            leader=self.members.leader,
            since_ms=self.since_ms,
            members=self.members.values(self.protocol),
        )
        self._is_dirty = True

    def die(self) -> None:
        """Delete the group."""
        self._set_state(DEAD)

    def _set_state(self, state: GroupState) -> None:
        assert state in TRANSITIONS[self.state], f"a group cannot change from {self.state.value} to {state.value}"
        self.state, self.since_ms, self.since_s = state, self.at_ms, self.now

    def _subscribed(self) -> frozenset[str] | None:
        if self.members.protocol_type != CONSUMER:
            return None
        topics: set[str] = set()
        for member in self.members:
            subscribed = subscribed_topics(member.metadata(self.protocol))
            if subscribed is None:
                return None
            topics |= subscribed
        return frozenset(topics)

    def _set(self, timer: events.Timer, after_ms: int, member: str = "") -> None:
        self._timers[timer, member] = self.now + after_ms / 1_000

    def _cancel(self, timer: events.Timer) -> None:
        self._timers[timer, ""] = None
