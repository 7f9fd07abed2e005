"""The members of a classic group, the pending ids, and the protocols that all members support.

Invariants: the leader is a member, unless there is none; an instance id has one member; ``supported`` counts the last
protocols of each member. Whenever there are members, they have a protocol in common: no member is added, and none
changes its protocols, unless ``supports`` holds.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from seaweedmq.core.kafka.groups.classic_events import Join, SubscribedMember
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import MemberValue

Protocols = tuple[tuple[str, bytes], ...]


@dataclass(slots=True, kw_only=True)
class Member:
    """A member, as of its last description of itself."""

    id: str
    instance: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    is_new: bool = True
    """Whether it was in no generation yet: only its first JoinGroup shows that it lives, so that may expire."""
    joining: int | None = None
    """Token of the waiting JoinGroup."""
    syncing: int | None = None
    """Token of the waiting SyncGroup."""

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for the others: it cannot send heartbeats meanwhile, so its session does not end."""
        return not self.is_new and (self.joining is not None or self.syncing is not None)

    @property
    def size_bytes(self) -> int:
        """The largest size of the member in a record."""
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
        """Return its metadata for a protocol; empty if it does not support the protocol."""
        return next((metadata for name, metadata in self.protocols if name == protocol), b"")


def protocols_bytes(protocols: Protocols) -> int:
    """Return the counted bytes of a member's protocols."""
    return sum(100 + len(name) + len(metadata) for name, metadata in protocols)


def distinct(protocols: Protocols) -> Protocols:
    """Return each name once, at its first position."""
    names: dict[str, bytes] = {}
    for name, metadata in protocols:
        names.setdefault(name, metadata)
    return tuple(names.items())


@dataclass(slots=True)
class Members:
    """The members of a group in the order of their joining."""

    protocol_type: str | None = None
    """Protocol type of the members, or of the last ones; None: no member ever joined."""
    leader: str | None = None
    pending: set[str] = field(default_factory=set)
    """Ids that clients got (MEMBER_ID_REQUIRED) and have not joined with yet."""
    unsynced: set[str] = field(default_factory=set)
    """Members without a SyncGroup in this generation."""
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
        """Return the member of this id."""
        return self._by_id.get(member)

    def of_instance(self, instance: str | None) -> Member | None:
        """Return the static member of this instance id."""
        return self._by_id[self._by_instance[instance]] if instance in self._by_instance else None

    def check(self, member: str, instance: str | None) -> Member | Code:
        """Return the sender: a member, under its own instance id if it names one; or an error."""
        if instance is not None:
            owner = self._by_instance.get(instance)
            if owner is None:
                return Code.UNKNOWN_MEMBER_ID
            if owner != member:
                return Code.FENCED_INSTANCE_ID
        return self._by_id.get(member) or Code.UNKNOWN_MEMBER_ID

    @property
    def have_all_joined(self) -> bool:
        """Whether all members have joined and no id is pending."""
        return self.joining_count == len(self._by_id) and not self.pending

    @property
    def rebalance_timeout_ms(self) -> int:
        """The longest rebalance timeout of the members."""
        return max((member.rebalance_timeout_ms for member in self), default=0)

    def expect(self, member: str) -> None:
        """Add a pending id."""
        self.pending.add(member)
        self.size_bytes += len(member)

    def forget_pending(self, member: str) -> None:
        """Remove a pending id."""
        self.pending.remove(member)
        self.size_bytes -= len(member)

    def add(self, member: Member, protocol_type: str) -> None:
        """Add a new member."""
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
        """Remove a member whose waiting requests have their replies; if it led, the longest member leads."""
        del self._by_id[member.id]
        if member.instance is not None:
            del self._by_instance[member.instance]
        self.unsynced.discard(member.id)
        self._count(member, -1)
        if self.leader == member.id:
            self.leader = next(iter(self._by_id), None)

    def replace(self, member: Member, join: Join) -> None:
        """Give a restarted static member another id; its assignment stays."""
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
        """Apply the protocols and timeouts of a repeated JoinGroup."""
        self._count(member, -1)
        member.protocols = distinct(join.protocols)
        member.session_timeout_ms = join.session_timeout_ms
        member.rebalance_timeout_ms = rebalance_timeout_ms(join)
        self._count(member, 1)

    def assign(self, member: Member, assignment: bytes) -> None:
        """Set the assignment of a member."""
        self.size_bytes += len(assignment) - len(member.assignment)
        member.assignment = assignment

    def elect(self) -> bool:
        """Elect a leader that joined, the present one if it did, and return whether there is one."""
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

    def park_join(self, member: Member, token: int) -> int | None:
        """Make a member wait for the end of the join phase; return the earlier waiting token, which needs a reply."""
        superseded = self.take_join(member)
        member.joining = token
        self.joining_count += 1
        return superseded

    def take_join(self, member: Member) -> int | None:
        """End the wait of a member; return its token, if any, which needs a reply."""
        token, member.joining = member.joining, None
        if token is not None:
            self.joining_count -= 1
        return token

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a client with these protocols may be a member; a group without members accepts any."""
        if not self._by_id:
            return bool(protocol_type) and bool(protocols)
        if protocol_type != self.protocol_type:
            return False
        return any(self._supported[name] == len(self) for name, _ in protocols)

    def select_protocol(self) -> str:
        """Return the common protocol that most members prefer; of equals, the first one named."""
        votes: Counter[str] = Counter()
        for member in self:
            votes[next(name for name, _ in member.protocols if self._supported[name] == len(self))] += 1
        return votes.most_common(1)[0][0]

    def to_leader(self, protocol: str | None) -> tuple[SubscribedMember, ...]:
        """Return all members with their metadata for the protocol."""
        return tuple(
            SubscribedMember(id=member.id, instance=member.instance, metadata=member.metadata(protocol))
            for member in self
        )

    def values(self, protocol: str | None) -> tuple[MemberValue, ...]:
        """Return all members as written in the group's record."""
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
    """Return the member of a first JoinGroup."""
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
    """Return a member of the last written generation, whose other protocols are unknown."""
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
    """Return the rebalance timeout of a request; without one, its session timeout."""
    return join.rebalance_timeout_ms if join.rebalance_timeout_ms >= 0 else join.session_timeout_ms
