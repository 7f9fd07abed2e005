"""JoinGroup: admission to a classic group, and repeated replies to members without changes.

| sender | id | state | result |
|---|---|---|---|
| a new client | none | any | up to v3 a member; from v4 it gets an id and joins again: MEMBER_ID_REQUIRED |
| a new client | an instance id | any | a static member at once |
| a static member | its instance id | Stable | another id, its assignment; a rebalance only for another protocol |
| a static member | its instance id | other | another id; a rebalance |
| a client with a pending id | its id | any | a member; a rebalance |
| a member | its id | PreparingRebalance | waits |
| a member | unchanged | CompletingRebalance | gets the generation again |
| a member, not the leader | unchanged | Stable | gets the generation again |
| a member | its id | other | a rebalance |

The leader's JoinGroup always causes a rebalance: it may know of partitions that no member's metadata contains.
"""

from collections.abc import Iterator

from seaweedmq.core.kafka.groups.classic_events import Join, JoinReply
from seaweedmq.core.kafka.groups.classic_members import Member, distinct, joined_member, protocols_bytes
from seaweedmq.core.kafka.groups.classic_rebalance import COMPLETING, DEAD, PREPARING, STABLE, ClassicRebalance
from seaweedmq.model.kafka.codes import Code


class JoinHandler:
    """JoinGroup handling of a classic group."""

    def __init__(self, round_: ClassicRebalance) -> None:
        self._round = round_
        self._members = round_.members
        self._limits = round_.limits

    def handle(self, join: Join) -> None:
        """Admit the sender, make it wait, or reject it."""
        error = self._error(join)
        if error is not Code.NONE:
            self._reject(join, error)
        elif join.member:
            self._join_again(join)
        else:
            self._join_first(join)

    def _error(self, join: Join) -> Code:
        if self._round.state is DEAD:
            return Code.COORDINATOR_NOT_AVAILABLE
        if any(len(text.encode()) > self._limits.string_bytes_max for text in _texts(join)):
            return Code.INVALID_REQUEST
        if not self._limits.session_timeout_ms_min <= join.session_timeout_ms <= self._limits.session_timeout_ms_max:
            return Code.INVALID_SESSION_TIMEOUT
        known = self._members.get(join.member) if join.member else self._members.of_instance(join.instance)
        if not self._has_room(join, known):
            return Code.GROUP_MAX_SIZE_REACHED
        if not self._members.supports(join.protocol_type, join.protocols):
            return Code.INCONSISTENT_GROUP_PROTOCOL
        return Code.NONE

    def _has_room(self, join: Join, known: Member | None) -> bool:
        most = self._limits.members_max
        more_bytes = protocols_bytes(join.protocols) - (protocols_bytes(known.protocols) if known is not None else 0)
        if more_bytes > 0 and self._members.size_bytes + more_bytes > self._limits.group_bytes_max:
            return False
        if known is None and not join.member and len(self._members.pending) >= most:
            return False
        if self._round.state is PREPARING:
            # Count joined members: a group that is too large rejects the last ones to join again.
            has_joined = known is not None and known.joining is not None
            return has_joined or self._members.joining_count < most
        return known is not None or len(self._members) < most

    def _join_first(self, join: Join) -> None:
        known = self._members.of_instance(join.instance)
        if known is not None:
            self._rejoin_static(known, join)
        elif join.instance is None and join.require_known_member_id:
            self._members.expect(join.new_member)
            self._round.watch_id(join.new_member, join.session_timeout_ms)
            self._answer(join, Code.MEMBER_ID_REQUIRED, join.new_member)
        else:
            self._round.admit(joined_member(join, join.new_member), join.protocol_type, join.token)

    def _join_again(self, join: Join) -> None:
        if join.member in self._members.pending and join.instance is None:
            self._round.admit(joined_member(join, join.member), join.protocol_type, join.token)
            return
        member = self._members.check(join.member, join.instance)
        if isinstance(member, Code):
            self._reject(join, member)
        elif self._is_repeat(member, join):
            self._round.reply_generation(member, join.token)
            self._round.watch(member)
        else:
            self._members.update(member, join)
            self._round.join(member, join.token)

    def _is_repeat(self, member: Member, join: Join) -> bool:
        """Whether the request contains nothing new: the reply to the last one may be lost."""
        if member.protocols != distinct(join.protocols):
            return False
        state = self._round.state
        return state is COMPLETING or (state is STABLE and member.id != self._members.leader)

    def _rejoin_static(self, member: Member, join: Join) -> None:
        """Give a restarted static member a new id; its last id is fenced."""
        leader_before = self._members.leader
        self._round.fail_waiting(member, Code.FENCED_INSTANCE_ID)
        self._round.unwatch(member.id)
        self._members.replace(member, join)
        self._round.watch(member)
        if self._round.state is not STABLE or self._members.select_protocol() != self._round.protocol:
            self._round.join(member, join.token)
            return
        self._round.write()
        if join.can_skip_assignment:
            self._round.reply_generation(member, join.token, skip_assignment=True)
        else:
            # An old client that reads itself as leader would assign again: the reply names its last id as leader.
            self._round.reply_generation(member, join.token, leader=leader_before)

    def _reject(self, join: Join, error: Code) -> None:
        if error is not Code.GROUP_MAX_SIZE_REACHED:
            self._answer(join, error, join.member)
            return
        self._answer(join, error, "")
        known = self._members.get(join.member)
        if join.member in self._members.pending:
            self._members.forget_pending(join.member)
            self._round.unwatch(join.member)
        elif known is not None and self._round.state is PREPARING:
            self._round.remove(known)
        self._round.maybe_end_join_phase()

    def _answer(self, join: Join, error: Code, member: str) -> None:
        self._round.reply(JoinReply(token=join.token, member=member, error=error))


def _texts(join: Join) -> Iterator[str]:
    """Yield the texts that the group would store."""
    yield from (join.new_member, join.instance or "", join.client_id, join.client_host, join.protocol_type)
    yield from (name for name, _ in join.protocols)
