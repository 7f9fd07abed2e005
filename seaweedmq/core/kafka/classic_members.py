"""Who is in a classic group, who is about to be, and which protocols all of them speak.

Invariants: the leader is a member, unless there is none; an instance id has one member; what ``supported`` counts is
what the members said last. A protocol that everybody speaks exists whenever there are members: nobody is added, and
nobody changes what it speaks, unless ``supports`` holds.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from seaweedmq.core.kafka.classic_events import Join, SubscribedMember
from seaweedmq.model.kafka_groups import GroupError, MemberValue

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, kw_only=True)
class Member:
    """A member, as it described itself last."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = True
    """It was in no generation yet: nothing but its first JoinGroup tells that it lives, so that may expire."""
    joining: int | None = None
    """Token of the JoinGroup that waits."""
    syncing: int | None = None
    """Token of the SyncGroup that waits."""

    @property
    def is_waiting(self) -> bool:
        """It waits for the others, and can not send heartbeats meanwhile: its session does not end."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    @property
    def size_bytes(self) -> int:
        """What it takes in a record, at most."""
        return (
            200
            + len(self.id)
            + len(self.instance or "")
            + len(self.client_id)
            + len(self.client_host)
            + protocols_bytes(self.protocols)
            + len(self.assignment)
        )

    def metadata(self, protocol: str | None) -> bytes:
        """What it said of a protocol; nothing, if it does not speak it."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def protocols_bytes(protocols: Protocols) -> int:
    """What a member's protocols count for."""
    return sum(100 + len(name) + len(metadata) for name, metadata in protocols)


def distinct(protocols: Protocols) -> Protocols:
    """Each name once, where it stands first."""
    names: dict[str, bytes] = {}
    for name, metadata in protocols:
        names.setdefault(name, metadata)
    return tuple(names.items())


@dataclass(slots=True)
class Members:
    """In the order they came."""

    protocol_type: str | None = None
    """Of the members, or of the last there were; None: nobody ever joined."""
    leader: str | None = None
    pending: set[str] = field(default_factory=set)
    """Ids that were given out (MEMBER_ID_REQUIRED) and did not join yet."""
    unsynced: set[str] = field(default_factory=set)
    """Members that did not send the SyncGroup of this generation yet."""
    joining_count: int = 0
    size_bytes: int = 0
    _by_id: dict[str, Member] = field(default_factory=dict)
    _by_instance: dict[str, str] = field(default_factory=dict)
    _supported: Counter[str] = field(default_factory=Counter)

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._by_id.values())

    def get(self, member: str) -> Member | None:
        """The member of this id."""
        return self._by_id.get(member)

    def of_instance(self, instance: str | None) -> Member | None:
        """The static member of this instance id."""
        return self._by_id[self._by_instance[instance]] if instance in self._by_instance else None

    def check(self, member: str, instance: str | None) -> Member | GroupError:
        """Who speaks: a member, under its own instance id if it names one."""
        if instance is not None:
            owner = self._by_instance.get(instance)
            if owner is None:
                return GroupError.UNKNOWN_MEMBER_ID
            if owner != member:
                return GroupError.FENCED_INSTANCE_ID
        return self._by_id.get(member) or GroupError.UNKNOWN_MEMBER_ID

    @property
    def have_all_joined(self) -> bool:
        """Nobody is missing in the join phase."""
        return self.joining_count == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest that somebody asked for."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    # --- who comes and goes -------------------------------------------------------------------------------------------

    def expect(self, member: str) -> None:
        """An id was given out."""
        self.pending.add(member)
        self.size_bytes += len(member)

    def forget_pending(self, member: str) -> None:
        """An id that was given out is not waited for any more."""
        self.pending.remove(member)
        self.size_bytes -= len(member)

    def add(self, member: Member, protocol_type: str) -> None:
        """Somebody new."""
        if not self._by_id:
            self.protocol_type = protocol_type
        self.leader = self.leader or member.id
        self._by_id[member.id] = member
        if member.instance is not None:
            self._by_instance[member.instance] = member.id
        if member.id in self.pending:
            self.forget_pending(member.id)
        self._count(member, 1)

    def remove(self, member: Member) -> None:
        """Its waiting requests must have been answered. If it led, the one that is here longest leads."""
        del self._by_id[member.id]
        if member.instance is not None:
            del self._by_instance[member.instance]
        self.unsynced.discard(member.id)
        self._count(member, -1)
        if self.leader == member.id:
            self.leader = next(iter(self._by_id), None)

    def replace(self, member: Member, join: Join) -> None:
        """A static member came back: it has another id, and its share is what it was."""
        new_id = join.new_member
        self._count(member, -1)
        self._by_id = {new_id if id_ == member.id else id_: each for id_, each in self._by_id.items()}
        if member.id in self.unsynced:
            self.unsynced.remove(member.id)
            self.unsynced.add(new_id)
        if self.leader == member.id:
            self.leader = new_id
        if member.instance is not None:
            self._by_instance[member.instance] = new_id
        member.id, member.is_new = new_id, False
        member.client_id, member.client_host = join.client_id, join.client_host
        self._count(member, 1)
        self.update(member, join)

    def update(self, member: Member, join: Join) -> None:
        """It joins again, and may have changed its mind."""
        self._count(member, -1)
        member.protocols = distinct(join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms(join)
        self._count(member, 1)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Its share from here on."""
        self.size_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def elect(self) -> bool:
        """Have a leader that joined: the one there is, if it did. False: nobody did."""
        leader = self._by_id.get(self.leader or "")
        if leader is None or leader.joining is None:
            joined = next((member for member in self if member.joining is not None), None)
            if joined is None:
                return False
            self.leader = joined.id
        return True

    def _count(self, member: Member, sign: int) -> None:
        self.size_bytes += sign * member.size_bytes
        for name, _ in member.protocols:
            self._supported[name] += sign
            if not self._supported[name]:
                del self._supported[name]

    # --- who waits ----------------------------------------------------------------------------------------------------

    def park_join(self, member: Member, token: int) -> int | None:
        """It waits for the end of the join phase. What is returned waited before: it must be answered."""
        superseded = self.take_join(member)
        member.joining = token
        self.joining_count += 1
        return superseded

    def take_join(self, member: Member) -> int | None:
        """What waited, if anything did: it must be answered now."""
        token, member.joining = member.joining, None
        if token is not None:
            self.joining_count -= 1
        return token

    # --- protocols ----------------------------------------------------------------------------------------------------

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether somebody who speaks these may be a member: without members a group may become anything."""
        if not self._by_id:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supported[name] == len(self) for name, _ in protocols)

    def select_protocol(self) -> str:
        """The one that most prefer, of those that everybody speaks; of equals, the one that was named first."""
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(name for name, _ in member.protocols if self._supported[name] == len(self))] += 1
        return votes.most_common(1)[0][0]

    # --- what is told and kept ----------------------------------------------------------------------------------------

    def to_leader(self, protocol: str | None) -> tuple[SubscribedMember, ...]:
        """Everybody, with what they said of the protocol."""
        return tuple(
            SubscribedMember(id=member.id, instance=member.instance, metadata=member.metadata(protocol))
            for member in self
        )

    def values(self, protocol: str | None) -> tuple[MemberValue, ...]:
        """Everybody, as it is written."""
        return tuple(
            MemberValue(
                id=member.id,
                instance=member.instance,
                client_id=member.client_id,
                client_host=member.client_host,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                subscription=member.metadata(protocol),
                assignment=member.assignment,
            )
            for member in self
        )


def joined_member(join: Join, member_id: str) -> Member:
    """Who sends its first JoinGroup."""
    return Member(
        id=member_id,
        instance=join.instance,
        client_id=join.client_id,
        client_host=join.client_host,
        session_timeout_ms=join.session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms(join),
        protocols=distinct(join.protocols),
    )


def loaded_member(value: MemberValue, protocol: str | None) -> Member:
    """A member of the generation that was written last. Which other protocols it speaks is not known."""
    return Member(
        id=value.id,
        instance=value.instance,
        client_id=value.client_id,
        client_host=value.client_host,
        session_timeout_ms=value.session_timeout_ms,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        protocols=((protocol or "", value.subscription),),
        assignment=value.assignment,
        is_new=False,
    )


def rebalance_timeout_ms(join: Join) -> int:
    """Without one the session timeout counts."""
    return join.rebalance_timeout_ms if join.rebalance_timeout_ms >= 0 else join.session_timeout_ms
