"""A consumer group of Kafka's classic protocol, as a pure state machine.

An event and the time go in; the value to write and the replies after it come out. ``core.kafka.classic_rebalance`` has
the states and their transitions, ``core.kafka.join_handler`` the JoinGroup requests. The other requests:

| sender | request | state | result |
|---|---|---|---|
| a member | SyncGroup | PreparingRebalance | REBALANCE_IN_PROGRESS |
| a member | SyncGroup | CompletingRebalance | waits for the leader's |
| a member | SyncGroup | Stable | gets its assignment |
| a member | Heartbeat | PreparingRebalance | REBALANCE_IN_PROGRESS |
| a member | Heartbeat | CompletingRebalance, Stable | its session begins again |
| a member | LeaveGroup, or its session expired | any | is removed; a rebalance |

A member is identified by its id alone. A request of another generation gets ILLEGAL_GENERATION, an unknown id
UNKNOWN_MEMBER_ID, and an instance id that has another id by now FENCED_INSTANCE_ID. A waiting member has no session:
the timers of the rebalance bound its wait.

Invariants: every request gets one reply; a generation has one leader and one set of members; the assignment of a member
in a generation is the one that its leader sent.
"""

from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.core.kafka.groups import classic_rebalance
from seaweedmq.core.kafka.groups.classic_members import Member, protocols_bytes
from seaweedmq.core.kafka.groups.join_handler import JoinHandler
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import DescribedGroup, DescribedMember, GroupState, GroupValue, ListedGroup


class ClassicGroup:
    """One group; ``value`` is the last written value, if the group is taken over."""

    def __init__(
        self, name: str, limits: events.CoordinatorLimits, now: float, value: GroupValue | None = None
    ) -> None:
        self.name = name
        self._rebalance = classic_rebalance.ClassicRebalance(limits, now, value)
        self._members = self._rebalance.members
        self._joins = JoinHandler(self._rebalance)

    @property
    def state(self) -> GroupState:
        """The state of the group."""
        return self._rebalance.state

    @property
    def generation(self) -> int:
        """The generation of the last completed join phase."""
        return self._rebalance.generation

    @property
    def written(self) -> GroupValue | None:
        """The last value returned for writing; None: nothing yet."""
        return self._rebalance.written

    @property
    def protocol_type(self) -> str | None:
        """The protocol type of its members, or of its last members; None: no member ever joined."""
        return self._members.protocol_type

    @property
    def since_ms(self) -> int | None:
        """The wall-clock time of the last change of state."""
        return self._rebalance.since_ms

    @property
    def since_s(self) -> float | None:
        """The steady time of the last change of state; None: under an earlier coordinator."""
        return self._rebalance.since_s

    @property
    def is_idle(self) -> bool:
        """Whether the group has no member and no pending id."""
        return self.state is classic_rebalance.EMPTY and not self._members.pending

    @property
    def knows_topics(self) -> bool:
        """Whether ``subscribes`` is exact; otherwise it assumes every topic."""
        return self._rebalance.topics is not None

    @property
    def members(self) -> int:
        """The number of members."""
        return len(self._members)

    @property
    def size_bytes(self) -> int:
        """The bytes of its members."""
        return self._members.size_bytes

    @property
    def assigned_bytes(self) -> int:
        """The bytes of its members' assignments."""
        return sum(len(member.assignment) for member in self._members)

    def protocols_bytes_of(self, member: str) -> int:
        """Return the bytes of the member's protocols; 0 for an unknown member."""
        known = self._members.get(member)
        return protocols_bytes(known.protocols) if known is not None else 0

    def subscribes(self, topic: str) -> bool:
        """Whether consumers of the group read the topic, or may read it."""
        topics = self._rebalance.topics
        return topic in topics if topics is not None else self.protocol_type == classic_rebalance.CONSUMER

    def handle(self, event: events.GroupEvent, now: float, at_ms: int) -> events.GroupOutcome:
        """Handle one event; ``now`` is in seconds on a steady clock, ``at_ms`` the wall clock."""
        self._rebalance.now, self._rebalance.at_ms = now, at_ms
        match event:
            case events.Join():
                self._joins.handle(event)
            case events.Sync():
                self._sync(event)
            case events.Heartbeat():
                self._heartbeat(event)
            case events.Leave():
                self._leave(event)
            case events.TimerFired(events.Timer.SESSION, member):
                self._end_session(member)
            case events.TimerFired(events.Timer.JOIN):
                self._rebalance.end_wait_for_joins()
            case events.TimerFired(events.Timer.SYNC):
                self._rebalance.end_wait_for_syncs()
        return self._rebalance.collect()

    def take_over(self, now: float, at_ms: int) -> events.GroupOutcome:
        """Begin the sessions of a loaded group, which rebalances if it has too many members: not all may join again."""
        self._rebalance.now, self._rebalance.at_ms = now, at_ms
        for member in self._members:
            self._rebalance.watch(member)
        if len(self._members) > self._rebalance.limits.members_max:
            self._rebalance.rebalance()
        return self._rebalance.collect()

    def die(self) -> events.GroupOutcome:
        """Delete the group, which must be empty; pending ids lose their validity."""
        for member in tuple(self._members.pending):
            self._members.forget_pending(member)
            self._rebalance.unwatch(member)
        self._rebalance.die()
        return self._rebalance.collect()

    def _sync(self, sync: events.Sync) -> None:
        member = self._sender(sync.member, sync.instance, sync.generation)
        if isinstance(member, Code):
            self._rebalance.reply(events.SyncReply(token=sync.token, error=member))
        elif sync.protocol_type not in {None, self.protocol_type} or sync.protocol not in {
            None,
            self._rebalance.protocol,
        }:
            self._rebalance.reply(events.SyncReply(token=sync.token, error=Code.INCONSISTENT_GROUP_PROTOCOL))
        elif self.state is classic_rebalance.PREPARING:
            self._rebalance.reply(events.SyncReply(token=sync.token, error=Code.REBALANCE_IN_PROGRESS))
        else:
            self._rebalance.sync(member, sync.token)
            if self.state is classic_rebalance.COMPLETING and member.id == self._members.leader:
                self._rebalance.assign(sync.assignments)

    def _heartbeat(self, beat: events.Heartbeat) -> None:
        member = self._sender(beat.member, beat.instance, beat.generation)
        if isinstance(member, Code):
            self._rebalance.reply(events.HeartbeatReply(beat.token, member))
            return
        self._rebalance.watch(member)
        is_over = self.state is classic_rebalance.PREPARING
        self._rebalance.reply(events.HeartbeatReply(beat.token, Code.REBALANCE_IN_PROGRESS if is_over else Code.NONE))

    def _leave(self, leave: events.Leave) -> None:
        if self.state is classic_rebalance.DEAD:
            self._rebalance.reply(events.LeaveReply(leave.token, Code.COORDINATOR_NOT_AVAILABLE))
            return
        before = len(self._members)
        results = tuple((leaving, self._remove_leaving(leaving)) for leaving in leave.members)
        if len(self._members) < before:
            self._rebalance.rebalance()
        self._rebalance.maybe_end_join_phase()
        self._rebalance.reply(events.LeaveReply(leave.token, members=results))

    def _remove_leaving(self, leaving: events.Leaving) -> Code:
        if leaving.member in self._members.pending:
            self._members.forget_pending(leaving.member)
            self._rebalance.unwatch(leaving.member)
            return Code.NONE
        if leaving.member:
            member = self._members.check(leaving.member, leaving.instance)
        else:
            member = self._members.of_instance(leaving.instance) or Code.UNKNOWN_MEMBER_ID
        if isinstance(member, Code):
            return member
        self._rebalance.remove(member)
        return Code.NONE

    def _end_session(self, member_id: str) -> None:
        if member_id in self._members.pending:
            self._members.forget_pending(member_id)
            self._rebalance.maybe_end_join_phase()
        member = self._members.get(member_id)
        if member is not None and not member.is_waiting:
            self._rebalance.remove(member)
            self._rebalance.rebalance()

    def _sender(self, member: str, instance: str | None, generation: int) -> Member | Code:
        if self.state is classic_rebalance.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        sender = self._members.check(member, instance)
        if isinstance(sender, Member) and generation != self.generation:
            return Code.ILLEGAL_GENERATION
        return sender

    def commit_error(self, commit: events.CommitOffsets) -> Code:
        """Return the error of a commit: a member may commit in its generation, any client while the group is empty."""
        if self.state is classic_rebalance.DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if commit.generation < 0 and self.state is classic_rebalance.EMPTY:
            return Code.NONE
        if commit.generation < 0 and not commit.member and commit.instance is None:
            return Code.UNKNOWN_MEMBER_ID
        sender = self._sender(commit.member, commit.instance, commit.generation)
        if isinstance(sender, Code):
            return sender
        # The member knows the generation, but not its assignment.
        return Code.REBALANCE_IN_PROGRESS if self.state is classic_rebalance.COMPLETING else Code.NONE

    def touch(self, member: str, now: float) -> events.GroupOutcome:
        """Extend the session of a member that committed, as a heartbeat does."""
        self._rebalance.now = now
        sender = self._members.get(member)
        if sender is not None:
            self._rebalance.watch(sender)
        return self._rebalance.collect()

    def listed(self) -> ListedGroup:
        """Return the group's line of ListGroups."""
        return ListedGroup(group=self.name, protocol_type=self.protocol_type or "", state=self.state)

    def described(self) -> DescribedGroup:
        """Return the group's entry of DescribeGroups."""
        protocol = self._rebalance.protocol if self.state is classic_rebalance.STABLE else None
        return DescribedGroup(
            group=self.name,
            state=self.state,
            protocol_type=self.protocol_type or "",
            protocol=protocol or "",
            members=tuple(
                DescribedMember(
                    id=member.id,
                    instance=member.instance,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    metadata=member.metadata(protocol),
                    assignment=member.assignment,
                )
                for member in self._members
            ),
        )
