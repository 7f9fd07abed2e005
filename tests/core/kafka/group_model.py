"""A plain second implementation of Kafka's classic coordinator for one group, after Kafka's ``GroupMetadataManager``.

It stores nothing that it can compute. Every method appends its answers to ``said``: the token and the relevant fields
of the answer. Time is in seconds; the test ensures that no two deadlines coincide.
"""

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field

from seaweedmq.core.kafka.groups import classic_events as events

Answer = tuple[object, ...]


@dataclass
class Someone:
    id: str
    instance: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session_s: float
    rebalance_s: float
    dies_at: float
    share: bytes = b""
    new: bool = True
    join: int | None = None
    sync: int | None = None
    synced: bool = True


@dataclass
class Model:
    limits: events.CoordinatorLimits
    now: float = 0.0
    phase: str = "Empty"
    generation: int = 0
    kind: str | None = None
    protocol: str | None = None
    leader: str | None = None
    members: list[Someone] = field(default_factory=list)
    given: dict[str, float] = field(default_factory=dict)
    """Issued member ids -> time at which they expire."""
    joins_until: float | None = None
    initial: tuple[float, float, bool] | None = None
    """The initial delay: its length, the remaining extension, and whether a member joined meanwhile."""
    syncs_until: float | None = None
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    kept: "Model | None" = None
    """State that was written last."""
    said: list[tuple[int, Answer]] = field(default_factory=list)

    # --- members
    def of(self, id_: str) -> Someone | None:
        return next((m for m in self.members if m.id == id_), None)

    def static(self, instance: str | None) -> Someone | None:
        return next((m for m in self.members if instance is not None and m.instance == instance), None)

    def problem(self, id_: str, instance: str | None) -> str | None:
        if instance is not None:
            owner = self.static(instance)
            if owner is None:
                return "UNKNOWN_MEMBER_ID"
            if owner.id != id_:
                return "FENCED_INSTANCE_ID"
        return None if self.of(id_) else "UNKNOWN_MEMBER_ID"

    @property
    def exists(self) -> bool:
        return bool(self.phase != "Empty" or self.given or self.kept or self.offsets)

    @property
    def waiting(self) -> set[int]:
        return {t for m in self.members for t in (m.join, m.sync) if t is not None}

    def spoken_by_all(self) -> set[str]:
        return set.intersection(*({name for name, _ in m.protocols} for m in self.members))

    def voted(self) -> str:
        common = self.spoken_by_all()
        votes = [next(name for name, _ in m.protocols if name in common) for m in self.members]
        most = max(Counter(votes).values())
        return next(vote for vote in votes if votes.count(vote) == most)

    # --- requests
    def ask_join(self, join: events.Join) -> None:
        who = self.of(join.member) if join.member else self.static(join.instance)
        if join.member and not self.exists:
            self.refuse(join, "UNKNOWN_MEMBER_ID")
        elif self.is_full_for(join, who):
            self.said.append((join.token, ("join", "GROUP_MAX_SIZE_REACHED", "")))
            if join.member in self.given:
                del self.given[join.member]
            elif who is not None and join.member and self.phase == "PreparingRebalance":
                self.drop(who)  # one that restarted names no id: Kafka removes nothing
            self.maybe_complete()
        elif self.members and (self.kind != join.protocol_type or not self.shares_protocol(join)):
            self.refuse(join, "INCONSISTENT_GROUP_PROTOCOL")
        elif not join.member:
            self.ask_first_join(join, who)
        elif join.member in self.given and join.instance is None:
            del self.given[join.member]
            self.add(join, join.member)
        else:
            self.ask_next_join(join)

    def shares_protocol(self, join: events.Join) -> bool:
        return bool({name for name, _ in join.protocols} & self.spoken_by_all())

    def is_full_for(self, join: events.Join, who: Someone | None) -> bool:
        most = self.limits.members_max
        if not join.member and who is None and len(self.given) >= most:
            return True
        if self.phase == "PreparingRebalance":
            return (who is None or who.join is None) and sum(m.join is not None for m in self.members) >= most
        return who is None and len(self.members) >= most

    def ask_first_join(self, join: events.Join, before: Someone | None) -> None:
        if before is None:
            if join.instance is None and join.require_known_member_id:
                self.given[join.new_member] = self.now + join.session_timeout_ms / 1_000
                self.said.append((join.token, ("join", "MEMBER_ID_REQUIRED", join.new_member)))
            else:
                self.add(join, join.new_member)
            return
        if before.join is not None:
            self.said.append((before.join, ("join", "FENCED_INSTANCE_ID", before.id)))
        if before.sync is not None:
            self.said.append((before.sync, ("sync", "FENCED_INSTANCE_ID", b"")))
        led = self.leader
        if self.leader == before.id:
            self.leader = join.new_member
        before.id, before.join, before.sync, before.new = join.new_member, None, None, False
        self.describe_anew(before, join)
        before.dies_at = self.now + before.session_s
        if self.phase != "Stable" or self.voted() != self.protocol:
            before.join = join.token
            self.rebalance()
        elif join.can_skip_assignment:
            self.keep()
            self.tell(before, join.token, skips=self.leader == before.id)
        else:
            self.keep()
            self.said.append((join.token, ("join", "NONE", before.id, self.generation, self.protocol, led, (), False)))

    def ask_next_join(self, join: events.Join) -> None:
        problem = self.problem(join.member, join.instance)
        who = self.of(join.member)
        if problem is not None or who is None:
            self.refuse(join, problem or "")
            return
        same = who.protocols == join.protocols
        if same and (self.phase == "CompletingRebalance" or (self.phase == "Stable" and self.leader != who.id)):
            who.dies_at = self.now + who.session_s
            self.tell(who, join.token)
            return
        self.describe_anew(who, join)
        if who.join is not None:
            self.said.append((who.join, ("join", "REBALANCE_IN_PROGRESS", who.id)))
        who.join = join.token
        self.rebalance()

    def ask_sync(self, sync: events.Sync) -> None:
        who = self.of(sync.member)
        problem = self.problem(sync.member, sync.instance)
        if problem is None and sync.generation != self.generation:
            problem = "ILLEGAL_GENERATION"
        if problem is None and self.phase == "PreparingRebalance":
            problem = "REBALANCE_IN_PROGRESS"
        if problem is not None or who is None:
            self.said.append((sync.token, ("sync", problem, b"")))
            return
        if who.sync is not None:
            self.said.append((who.sync, ("sync", "REBALANCE_IN_PROGRESS", b"")))
        who.sync, who.synced = sync.token, True
        if self.phase == "CompletingRebalance" and self.leader == who.id:
            for member in self.members:
                member.share = sync.assignments.get(member.id, b"")
            self.phase = "Stable"
            self.keep()
            self.answer_syncs("NONE")
        elif self.phase == "Stable":
            self.answer_syncs("NONE")

    def ask_heartbeat(self, beat: events.Heartbeat) -> None:
        problem = self.problem(beat.member, beat.instance)
        if problem is None and beat.generation != self.generation:
            problem = "ILLEGAL_GENERATION"
        who = self.of(beat.member)
        if problem is None and who is not None:
            who.dies_at = self.now + who.session_s
            if self.phase == "PreparingRebalance":
                problem = "REBALANCE_IN_PROGRESS"
        self.said.append((beat.token, ("beat", problem or "NONE")))

    def ask_leave(self, leave: events.Leave) -> None:
        before = len(self.members)
        answers = tuple(self.let_go(leaving) for leaving in leave.members)
        if len(self.members) < before:
            self.rebalance()
        self.maybe_complete()
        self.said.append((leave.token, ("leave", answers)))

    def let_go(self, leaving: events.Leaving) -> str:
        if leaving.member in self.given:
            del self.given[leaving.member]
            return "NONE"
        who = self.of(leaving.member) if leaving.member else self.static(leaving.instance)
        problem = self.problem(leaving.member, leaving.instance) if leaving.member else None
        if problem is not None or who is None:
            return problem or "UNKNOWN_MEMBER_ID"
        self.drop(who)
        return "NONE"

    def ask_commit(self, commit: events.CommitOffsets) -> None:
        who = self.of(commit.member)
        problem: str | None = None
        if not self.exists:
            problem = None if commit.generation < 0 else "GROUP_ID_NOT_FOUND"
        elif self.phase == "Empty" and commit.generation < 0:
            problem = None
        elif commit.generation < 0 and not commit.member:
            problem = "UNKNOWN_MEMBER_ID"
        else:
            problem = self.problem(commit.member, commit.instance)
            if problem is None and commit.generation != self.generation:
                problem = "ILLEGAL_GENERATION"
            if problem is None and self.phase == "CompletingRebalance":
                problem = "REBALANCE_IN_PROGRESS"
        if problem is None:
            if who is not None:
                who.dies_at = self.now + who.session_s
            self.offsets.update({(o.topic, o.partition): o.offset for o in commit.offsets})
        self.said.append((commit.token, ("commit", problem or "NONE")))

    # --- rebalances
    def add(self, join: events.Join, id_: str) -> None:
        who = Someone(id_, join.instance, (), 0, 0, self.now + self.limits.new_member_join_ms / 1_000)
        self.describe_anew(who, join)
        if not self.members:
            self.kind = join.protocol_type
        self.members.append(who)
        self.leader = self.leader or id_
        if self.initial is not None:
            self.initial = (*self.initial[:2], True)
        who.join = join.token
        self.rebalance()

    def describe_anew(self, who: Someone, join: events.Join) -> None:
        who.protocols = join.protocols
        who.session_s, who.rebalance_s = join.session_timeout_ms / 1_000, join.rebalance_timeout_ms / 1_000

    def drop(self, who: Someone) -> None:
        if who.join is not None:
            self.said.append((who.join, ("join", "UNKNOWN_MEMBER_ID", "")))
        if who.sync is not None:
            self.said.append((who.sync, ("sync", "UNKNOWN_MEMBER_ID", b"")))
        self.members.remove(who)
        if self.leader == who.id:
            self.leader = self.members[0].id if self.members else None

    def rebalance(self) -> None:
        if self.phase == "PreparingRebalance":
            self.maybe_complete()
            return
        if self.phase == "CompletingRebalance":
            for member in self.members:
                member.share = b""
            self.answer_syncs("REBALANCE_IN_PROGRESS")
        self.syncs_until = None
        longest = max((m.rebalance_s for m in self.members), default=0.0)
        if self.phase == "Empty":
            delay = self.limits.rebalance_delay_ms / 1_000
            self.initial = (delay, max(longest - delay, 0.0), False)
            self.joins_until = self.now + delay
        else:
            self.joins_until = self.now + longest
        self.phase = "PreparingRebalance"
        self.maybe_complete()

    def maybe_complete(self) -> None:
        all_joined = all(m.join is not None for m in self.members) and not self.given
        if self.phase == "PreparingRebalance" and self.initial is None and all_joined:
            self.complete()

    def complete(self) -> None:
        self.initial = self.joins_until = None
        for member in [m for m in self.members if m.join is None and m.instance is None]:
            self.drop(member)
        joined = [m for m in self.members if m.join is not None]
        longest = max((m.rebalance_s for m in self.members), default=0.0)
        if self.members and not joined:
            self.joins_until = self.now + max(longest, 1.0)
            return
        self.generation += 1
        if not self.members:
            self.phase, self.protocol = "Empty", None
            self.keep()
            return
        if self.leader not in {m.id for m in joined}:
            self.leader = joined[0].id
        self.phase, self.protocol = "CompletingRebalance", self.voted()
        for member in self.members:
            token, member.join = member.join, None
            member.new, member.synced, member.dies_at = False, False, self.now + member.session_s
            if token is not None:
                self.tell(member, token)
        self.syncs_until = self.now + longest

    def tell(self, who: Someone, token: int, *, skips: bool = False) -> None:
        everybody = tuple(m.id for m in self.members) if self.leader == who.id else ()
        self.said.append(
            (token, ("join", "NONE", who.id, self.generation, self.protocol, self.leader, everybody, skips))
        )

    def answer_syncs(self, error: str) -> None:
        for member in self.members:
            if member.sync is not None:
                self.said.append((member.sync, ("sync", error, member.share if error == "NONE" else b"")))
                member.sync, member.dies_at = None, self.now + member.session_s

    def refuse(self, join: events.Join, error: str) -> None:
        self.said.append((join.token, ("join", error, join.member)))

    # --- time and failures
    def next_at(self) -> float | None:
        times = [*self.given.values(), *(m.dies_at for m in self.members if self.is_mortal(m))]
        times += [t for t in (self.joins_until,) if t is not None]
        if self.syncs_until is not None and any(not m.synced for m in self.members):
            times.append(self.syncs_until)
        return min(times, default=None)

    def is_mortal(self, who: Someone) -> bool:
        return who.new or (who.join is None and who.sync is None)

    def pass_time(self) -> None:
        """Handle one elapsed deadline."""
        for id_ in [id_ for id_, at in self.given.items() if at <= self.now]:
            del self.given[id_]
            self.maybe_complete()
        for member in [m for m in self.members if m.dies_at <= self.now and self.is_mortal(m)]:
            self.drop(member)
            self.rebalance()
        if self.joins_until is not None and self.joins_until <= self.now:
            self.end_join_phase()
        if self.syncs_until is not None and self.syncs_until <= self.now:
            self.syncs_until = None
            late = [m for m in self.members if not m.synced]
            for member in late:
                self.drop(member)
            if late:
                self.rebalance()

    def end_join_phase(self) -> None:
        if self.initial is not None and self.initial[2] and self.initial[1] > 0:
            delay, left, _ = self.initial
            longer = min(self.limits.rebalance_delay_ms / 1_000, left)
            self.initial = (longer, max(left - delay, 0.0), False)
            self.joins_until = self.now + longer
        else:
            self.complete()

    def keep(self) -> None:
        self.kept = None
        self.kept = deepcopy(self)

    def taken_over(self) -> "Model":
        """Return the model of the next coordinator."""
        if self.kept is None:
            return Model(self.limits, self.now, offsets=dict(self.offsets))
        kept = self.kept
        after = Model(
            self.limits,
            self.now,
            phase="Stable" if kept.members else "Empty",
            generation=kept.generation,
            kind=kept.kind,
            protocol=kept.protocol,
            leader=kept.leader,
            offsets=dict(self.offsets),
            kept=kept,
        )
        for member in deepcopy(kept.members):
            member.protocols = tuple(p for p in member.protocols if p[0] == kept.protocol)
            member.new, member.join, member.sync, member.synced = False, None, None, True
            member.dies_at = self.now + member.session_s
            after.members.append(member)
        return after
