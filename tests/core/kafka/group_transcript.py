"""Transcripts of a coordinator: each line is the answer to one client.

A transcript has one shard and its log. Clients (``a``, ``b``) remember their last answer, as real ones do: their
member id and generation.
"""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.core.kafka.groups.shard_state import GroupShard
from seaweedmq.core.kafka.groups.state_memory import StateMemory
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import DescribedGroup, ShardRecord

LIMITS = events.CoordinatorLimits(members_max=4)
AT_MS = 1_700_000_000_000
"""Wall clock at second 0 of a transcript."""


def subscription(*topics: str) -> bytes:
    """A consumer's subscription: version 3 of its metadata, with nothing after the topics but user data."""
    names = b"".join(struct.pack(">h", len(topic.encode())) + topic.encode() for topic in topics)
    return struct.pack(">hi", 3, len(topics)) + names + struct.pack(">i", -1)


@dataclass
class Person:
    """Knowledge of one client of the coordinator."""

    name: str
    instance: str | None
    member: str = ""
    generation: int = -1
    ids: int = 0


@dataclass
class Transcript:
    """Every method returns the answers that it causes, as lines."""

    limits: events.CoordinatorLimits = LIMITS
    group: str = "g"
    now: float = 0.0
    ahead_s: float = 0.0
    """Seconds by which the wall clock is ahead of the true time."""
    log: list[ShardRecord] = field(default_factory=list)
    memory: StateMemory = field(default_factory=lambda: StateMemory(1 << 30))
    people: dict[str, Person] = field(default_factory=dict)
    asked: dict[int, str] = field(default_factory=dict)
    """Request -> client that waits for its answer."""
    tokens: int = 0

    def __post_init__(self) -> None:
        self.shard = GroupShard(self.limits, self.memory)
        self.shard.begin(self.now, self.at_ms)

    @property
    def at_ms(self) -> int:
        return AT_MS + int((self.now + self.ahead_s) * 1_000)

    @property
    def told(self) -> DescribedGroup:
        return self.shard.describe(self.group)

    @property
    def state(self) -> str:
        return self.told.state.value

    @property
    def waiting(self) -> list[str]:
        return sorted(self.asked.values())

    def person(self, name: str) -> Person:
        return self.people.setdefault(name, Person(name, None))

    # --- requests of clients
    def joins(
        self,
        name: str,
        *protocols: str,
        instance: str | None = None,
        member: str | None = None,
        topics: tuple[str, ...] = ("orders",),
        metadata: bytes | None = None,
        kind: str = "consumer",
        session_s: float = 10,
        rebalance_s: float = 60,
        v: int = 9,
    ) -> list[str]:
        person = self.person(name)
        person.instance = instance or person.instance
        person.ids += 1
        said = subscription(*topics) if metadata is None else metadata
        return self.asks(
            name,
            events.Join(
                token=0,
                group=self.group,
                member=person.member if member is None else member,
                new_member=f"{name}-{person.ids}",
                instance=person.instance,
                client_id=name,
                client_host="/127.0.0.1",
                protocol_type=kind,
                protocols=tuple((protocol, said) for protocol in protocols or ("range",)),
                session_timeout_ms=int(session_s * 1_000),
                rebalance_timeout_ms=int(rebalance_s * 1_000),
                require_known_member_id=v >= 4,
                can_skip_assignment=v >= 9,
            ),
        )

    def enters(self, name: str, *protocols: str, **how: Any) -> list[str]:
        """Join, and join again with the member id of the answer."""
        first = self.joins(name, *protocols, **how)
        if first != [f"{name}: MEMBER_ID_REQUIRED"]:
            return first
        return self.joins(name, *protocols, **how)

    def syncs(self, name: str, protocol: str | None = None, **shares: str) -> list[str]:
        person = self.person(name)
        assignments = {self.person(who).member: share.encode() for who, share in shares.items()}
        return self.asks(
            name,
            events.Sync(
                token=0,
                group=self.group,
                member=person.member,
                instance=person.instance,
                generation=person.generation,
                protocol=protocol,
                assignments=assignments,
            ),
        )

    def beats(self, name: str) -> list[str]:
        person = self.person(name)
        return self.asks(
            name,
            events.Heartbeat(
                token=0, group=self.group, member=person.member, instance=person.instance, generation=person.generation
            ),
        )

    def leaves(self, *names: str) -> list[str]:
        members = tuple(events.Leaving(self.person(n).member, self.person(n).instance) for n in names)
        return self.asks(",".join(names), events.Leave(token=0, group=self.group, members=members))

    def commits(
        self,
        name: str,
        offsets: Mapping[events.Partition, int],
        *,
        metadata: str = "",
        simple: bool = False,
        retention_s: int | None = None,
        v: int = 9,
    ) -> list[str]:
        person = self.person(name)
        return self.asks(
            name,
            events.CommitOffsets(
                token=0,
                group=self.group,
                member="" if simple else person.member,
                instance=None if simple else person.instance,
                generation=-1 if simple else person.generation,
                retention_ms=None if retention_s is None else retention_s * 1_000,
                offsets=tuple(
                    events.OffsetToCommit(
                        topic=topic, partition=number, offset=offset, leader_epoch=2, metadata=metadata
                    )
                    for (topic, number), offset in offsets.items()
                ),
                is_v9=v >= 9,
            ),
        )

    def deletes_offsets(self, *partitions: events.Partition) -> list[str]:
        return self.asks("admin", events.DeleteOffsets(0, self.group, partitions))

    def deletes_group(self) -> list[str]:
        return self.asks("admin", events.RemoveGroup(0, self.group))

    def loses_topic(self, topic: str) -> list[str]:
        return self.does(events.TopicsDeleted({topic: None}))

    @property
    def committed(self) -> dict[events.Partition, int]:
        return {partition: value.offset for partition, value in self.shard.offsets(self.group).items()}

    # --- time and failures
    def waits(self, seconds: float, *alive: str) -> list[str]:
        """Let time pass; live clients send heartbeats every second."""
        until, lines, beat_at = self.now + seconds, [], self.now + 1
        while True:
            wake_at = self.shard.wake_at
            at = min(until, beat_at if alive else until, until if wake_at is None else max(wake_at, self.now))
            self.now = at
            if wake_at is not None and wake_at <= at:
                lines += self.does(events.Tick())
            elif alive and at == beat_at and at < until:
                beat_at += 1
                lines += [line for name in alive for line in self.beats(name) if not line.endswith(": alive")]
            if at >= until and (self.shard.wake_at or until + 1) > until:
                return lines

    def fails_over(self) -> None:
        """Let another coordinator take over: it knows all that was written, and answers no pending request."""
        self.asked.clear()
        self.shard.close()
        self.shard = GroupShard(self.limits, self.memory)
        for record in self.log:
            self.shard.load(record)
        self.shard.begin(self.now, self.at_ms)

    # --- lines
    def asks(
        self,
        who: str,
        event: events.Join
        | events.Sync
        | events.Heartbeat
        | events.Leave
        | events.CommitOffsets
        | events.DeleteOffsets
        | events.RemoveGroup,
    ) -> list[str]:
        self.tokens += 1
        self.asked[self.tokens] = who
        return self.does(replace(event, token=self.tokens))

    def does(self, event: events.ShardEvent) -> list[str]:
        outcome = self.shard.handle(event, self.now, self.at_ms)
        self.log += outcome.records
        return [self._line(reply) for reply in (*outcome.prompt, *outcome.replies)]

    def _line(self, reply: events.Reply) -> str:
        who = self.asked.pop(reply.token)
        match reply:
            case events.JoinReply():
                return f"{who}: {self._joined(self.person(who), reply)}"
            case events.SyncReply():
                share = reply.assignment.decode() or "nothing"
                return f"{who}: {f'gets {share}' if reply.error is Code.NONE else reply.error.name}"
            case events.HeartbeatReply():
                return f"{who}: {'alive' if reply.error is Code.NONE else reply.error.name}"
            case events.LeaveReply():
                if reply.error is not Code.NONE:
                    return f"{who}: {reply.error.name}"
                for leaving, error in reply.members:
                    for person in self.people.values():
                        if leaving.member == person.member and error is Code.NONE:
                            person.member = ""
                return f"{who}: " + ", ".join(
                    "gone" if error is Code.NONE else error.name for _, error in reply.members
                )
            case events.CommitReply() | events.DeleteOffsetsReply(_, Code.NONE, _):
                return f"{who}: " + ", ".join("done" if e is Code.NONE else e.name for e in reply.errors)
            case events.DeleteOffsetsReply() | events.DeleteGroupReply():
                return f"{who}: {'done' if reply.error is Code.NONE else reply.error.name}"

    def _joined(self, person: Person, reply: events.JoinReply) -> str:
        if reply.error is Code.MEMBER_ID_REQUIRED:
            person.member = reply.member
        if reply.error is not Code.NONE:
            return reply.error.name
        person.member, person.generation = reply.member, reply.generation
        line = f"in {reply.generation} by {reply.protocol}"
        if reply.members:
            line += ", leads " + " ".join(member.id.split("-")[0] for member in reply.members)
        return line + (", all is assigned" if reply.skip_assignment else "")
