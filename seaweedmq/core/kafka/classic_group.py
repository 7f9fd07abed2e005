"""A consumer group of Kafka's classic protocol, as a pure state machine: who may say what, and when.

An event and the time go in; what to write and, once that is done, what to say come out. ``core.kafka.classic_round``
has the states and what leads from one to the next, ``core.kafka.classic_joins`` who is let in. What else a member's
word counts for:

| who | says | in | then |
|---|---|---|---|
| a member | SyncGroup | PreparingRebalance | REBALANCE_IN_PROGRESS |
| a member | SyncGroup | CompletingRebalance | waits for the leader's |
| a member | SyncGroup | Stable | gets its share |
| a member | Heartbeat | PreparingRebalance | REBALANCE_IN_PROGRESS |
| a member | Heartbeat | CompletingRebalance, Stable | goes on |
| a member | LeaveGroup; silence for its session | any | is none any more; a round |

A member is told apart by its id alone. Who names another generation is told ILLEGAL_GENERATION; an id that is not known
is UNKNOWN_MEMBER_ID; an instance id that has another id by now is FENCED_INSTANCE_ID. A member that waits has no
session that could end: it is bounded by the timers of the round.

Invariants: every request is answered once; a generation has one leader and one set of members; what a member is given
in a generation is what that leader gave.
"""

from seaweedmq.core.kafka.classic_events import (
    CommitOffsets,
    CoordinatorLimits,
    GroupEvent,
    GroupOutcome,
    Heartbeat,
    HeartbeatReply,
    Join,
    Leave,
    LeaveReply,
    Leaving,
    Sync,
    SyncReply,
    Timer,
    TimerFired,
)
from seaweedmq.core.kafka.classic_members import Member, protocols_bytes
from seaweedmq.core.kafka.classic_rebalance import (
    COMPLETING,
    CONSUMER,
    DEAD,
    EMPTY,
    PREPARING,
    STABLE,
    ClassicRebalance,
)
from seaweedmq.core.kafka.join_handler import JoinHandler
from seaweedmq.model.kafka_groups import (
    DescribedGroup,
    DescribedMember,
    GroupError,
    GroupState,
    GroupValue,
    ListedGroup,
)


class ClassicGroup:
    """One group. ``value``: what was written of it last, if it is taken over."""

    def __init__(self, name: str, limits: CoordinatorLimits, now: float, value: GroupValue | None = None) -> None:
        self.name = name
        self._round = ClassicRebalance(limits, now, value)
        self._members = self._round.members
        self._joins = JoinHandler(self._round)

    @property
    def state(self) -> GroupState:
        """Which state it is in."""
        return self._round.state

    @property
    def generation(self) -> int:
        """Of the last join phase that ended."""
        return self._round.generation

    @property
    def written(self) -> GroupValue | None:
        """What was handed out to be written last; None: nothing yet."""
        return self._round.written

    @property
    def protocol_type(self) -> str | None:
        """Of its members, or of the last there were; None: nobody ever joined."""
        return self._members.protocol_type

    @property
    def since_ms(self) -> int | None:
        """Since when it is in its state."""
        return self._round.since_ms

    @property
    def since_s(self) -> float | None:
        """The same by the steady clock; None: since before this coordinator took over."""
        return self._round.since_s

    @property
    def is_idle(self) -> bool:
        """Nobody is in it, or about to be."""
        return self.state is EMPTY and not self._members.pending

    @property
    def knows_topics(self) -> bool:
        """Whether ``subscribes`` knows, or only fears the worst."""
        return self._round.topics is not None

    @property
    def members(self) -> int:
        """Number of its members."""
        return len(self._members)

    @property
    def size_bytes(self) -> int:
        """What its members take."""
        return self._members.size_bytes

    @property
    def assigned_bytes(self) -> int:
        """What the shares of its members take."""
        return sum(len(member.assignment) for member in self._members)

    def said_bytes(self, member: str) -> int:
        """What the member's protocols take; 0 for one that is not known."""
        known = self._members.get(member)
        return protocols_bytes(known.protocols) if known is not None else 0

    def subscribes(self, topic: str) -> bool:
        """Whether its consumers read the topic, as far as is known."""
        topics = self._round.topics
        return topic in topics if topics is not None else self.protocol_type == CONSUMER

    def handle(self, event: GroupEvent, now: float, at_ms: int) -> GroupOutcome:
        """Take one event. ``now`` is in seconds on a steady clock, ``at_ms`` the wall clock."""
        self._round.now, self._round.at_ms = now, at_ms
        match event:
            case Join():
                self._joins.handle(event)
            case Sync():
                self._sync(event)
            case Heartbeat():
                self._heartbeat(event)
            case Leave():
                self._leave(event)
            case TimerFired(Timer.SESSION, member):
                self._end_session(member)
            case TimerFired(Timer.JOIN):
                self._round.end_wait_for_joins()
            case TimerFired(Timer.SYNC):
                self._round.end_wait_for_syncs()
        return self._round.collect()

    def take_over(self, now: float, at_ms: int) -> GroupOutcome:
        """It was loaded: sessions begin anew. Too many members are told to join again, and not all of them may."""
        self._round.now, self._round.at_ms = now, at_ms
        for member in self._members:
            self._round.watch(member)
        if len(self._members) > self._round.limits.members_max:
            self._round.rebalance()
        return self._round.collect()

    def die(self) -> GroupOutcome:
        """It is deleted: it must be empty. Ids that were given out are worth nothing."""
        for member in tuple(self._members.pending):
            self._members.forget_pending(member)
            self._round.unwatch(member)
        self._round.die()
        return self._round.collect()

    # --- the others ---------------------------------------------------------------------------------------------------

    def _sync(self, sync: Sync) -> None:
        member = self._speaker(sync.member, sync.instance, sync.generation)
        if isinstance(member, GroupError):
            self._round.reply(SyncReply(token=sync.token, error=member))
        elif sync.protocol_type not in {None, self.protocol_type} or sync.protocol not in {None, self._round.protocol}:
            self._round.reply(SyncReply(token=sync.token, error=GroupError.INCONSISTENT_GROUP_PROTOCOL))
        elif self.state is PREPARING:
            self._round.reply(SyncReply(token=sync.token, error=GroupError.REBALANCE_IN_PROGRESS))
        else:
            self._round.sync(member, sync.token)
            if self.state is COMPLETING and member.id == self._members.leader:
                self._round.assign(sync.assignments)

    def _heartbeat(self, beat: Heartbeat) -> None:
        member = self._speaker(beat.member, beat.instance, beat.generation)
        if isinstance(member, GroupError):
            self._round.reply(HeartbeatReply(beat.token, member))
            return
        self._round.watch(member)
        is_over = self.state is PREPARING
        self._round.reply(HeartbeatReply(beat.token, GroupError.REBALANCE_IN_PROGRESS if is_over else GroupError.NONE))

    def _leave(self, leave: Leave) -> None:
        if self.state is DEAD:
            self._round.reply(LeaveReply(leave.token, GroupError.COORDINATOR_NOT_AVAILABLE))
            return
        before = len(self._members)
        results = tuple((leaving, self._let_go(leaving)) for leaving in leave.members)
        if len(self._members) < before:
            self._round.rebalance()
        self._round.maybe_end_join_phase()
        self._round.reply(LeaveReply(leave.token, members=results))

    def _let_go(self, leaving: Leaving) -> GroupError:
        if leaving.member in self._members.pending:
            self._members.forget_pending(leaving.member)
            self._round.unwatch(leaving.member)
            return GroupError.NONE
        if leaving.member:
            member = self._members.check(leaving.member, leaving.instance)
        else:
            member = self._members.of_instance(leaving.instance) or GroupError.UNKNOWN_MEMBER_ID
        if isinstance(member, GroupError):
            return member
        self._round.remove(member)
        return GroupError.NONE

    def _end_session(self, member_id: str) -> None:
        if member_id in self._members.pending:
            self._members.forget_pending(member_id)
            self._round.maybe_end_join_phase()
        member = self._members.get(member_id)
        if member is not None and not member.is_waiting:
            self._round.remove(member)
            self._round.rebalance()

    def _speaker(self, member: str, instance: str | None, generation: int) -> Member | GroupError:
        if self.state is DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        speaker = self._members.check(member, instance)
        if isinstance(speaker, Member) and generation != self.generation:
            return GroupError.ILLEGAL_GENERATION
        return speaker

    # --- offsets ------------------------------------------------------------------------------------------------------

    def commit_error(self, commit: CommitOffsets) -> GroupError:
        """Whether it may commit: a member in its generation, or anybody while the group is empty."""
        if self.state is DEAD:
            return GroupError.COORDINATOR_NOT_AVAILABLE
        if commit.generation < 0 and self.state is EMPTY:
            return GroupError.NONE
        if commit.generation < 0 and not commit.member and commit.instance is None:
            return GroupError.UNKNOWN_MEMBER_ID
        speaker = self._speaker(commit.member, commit.instance, commit.generation)
        if isinstance(speaker, GroupError):
            return speaker
        # The member knows the generation, but not what it is to read in it.
        return GroupError.REBALANCE_IN_PROGRESS if self.state is COMPLETING else GroupError.NONE

    def touch(self, member: str, now: float) -> GroupOutcome:
        """A member committed: that tells as much as a heartbeat."""
        self._round.now = now
        speaker = self._members.get(member)
        if speaker is not None:
            self._round.watch(speaker)
        return self._round.collect()

    # --- to people ----------------------------------------------------------------------------------------------------

    def listed(self) -> ListedGroup:
        """A line of ListGroups."""
        return ListedGroup(group=self.name, protocol_type=self.protocol_type or "", state=self.state)

    def described(self) -> DescribedGroup:
        """An answer of DescribeGroups."""
        protocol = self._round.protocol if self.state is STABLE else None
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
