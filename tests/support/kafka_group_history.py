"""Rules for records delivered to members of a Kafka group and for their commits, under any coordinator.

Kafka redelivers uncommitted records, so that a repeated record violates no rule. A commit is final: no member may
commit less afterwards, fetch less, or begin below it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import TypeAlias

from tests.support.history import Violation

Partition: TypeAlias = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Committed:
    """An offset that the coordinator reported: after a commit, or in a fetch. All times are of one clock."""

    who: str
    generation: int
    partition: Partition
    offset: int
    begin_ns: int
    """Time of the request."""
    end_ns: int
    """Time of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assigned:
    """A partition assigned to a member that has not fetched its offset yet."""

    member: str
    generation: int
    partition: Partition
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """A record delivered to a member, noted before it was committed."""

    member: str
    partition: Partition
    offset: int
    at_ns: int


@dataclass(slots=True)
class Tenures:
    """The history of one group; each member's own events are in their order."""

    committed: list[Committed] = field(default_factory=list)
    """Offsets reported to members and to clients outside the group."""
    assigned: list[Assigned] = field(default_factory=list)
    given: list[Given] = field(default_factory=list)


def check_tenures(history: Tenures) -> list[Violation]:
    """Return the violations of all rules."""
    return [*back(history.committed), *two_owners(history.assigned), *below(history)]


def back(committed: Sequence[Committed]) -> Iterator[Violation]:
    """Yield offsets below one that was reported before their request began."""
    furthest: dict[Partition, Committed] = {}
    moments = chain(((c.begin_ns, False, c) for c in committed), ((c.end_ns, True, c) for c in committed))
    for _, is_known, now in sorted(moments, key=lambda moment: moment[:2]):
        before = furthest.get(now.partition)
        if is_known:
            if before is None or before.offset < now.offset:
                furthest[now.partition] = now
        elif before is not None and now.offset < before.offset:
            yield Violation(
                "committed goes back",
                f"{now.partition} is {now.offset} for {now.who} of generation {now.generation}, after {before.offset} "
                f"for {before.who} of generation {before.generation}",
            )


def two_owners(assigned: Sequence[Assigned]) -> Iterator[Violation]:
    """Yield partitions with two owners in one generation."""
    owners: dict[tuple[int, Partition], str] = {}
    for a in assigned:
        owner = owners.setdefault((a.generation, a.partition), a.member)
        if owner != a.member:
            yield Violation("two owners", f"{a.partition} is {owner}'s and {a.member}'s in generation {a.generation}")


def below(history: Tenures) -> Iterator[Violation]:
    """Yield members that begin below a commit from before their assignment, or skip records."""
    known = sorted(history.committed, key=lambda c: c.end_ns)
    tenures: dict[tuple[str, Partition], list[tuple[int, int, int]]] = {}
    floors: dict[Partition, int] = {}
    position = 0
    for a in sorted(history.assigned, key=lambda a: a.at_ns):
        while position < len(known) and known[position].end_ns < a.at_ns:
            c = known[position]
            floors[c.partition] = max(floors.get(c.partition, 0), c.offset)
            position += 1
        tenures.setdefault((a.member, a.partition), []).append((a.at_ns, floors.get(a.partition, 0), a.generation))
    last: dict[tuple[str, Partition, int], int] = {}
    for g in history.given:
        begun = [tenure for tenure in tenures.get((g.member, g.partition), ()) if tenure[0] <= g.at_ns]
        if not begun:
            yield Violation("not its own", f"{g.member} got {g.partition}:{g.offset}, a partition it was not given")
            continue
        begun_ns, floor, generation = begun[-1]
        before = last.get((g.member, g.partition, begun_ns))
        if before is None and g.offset < floor:
            yield Violation(
                "read below committed",
                f"{g.member} of generation {generation} begins at {g.partition}:{g.offset}, and {floor} was committed",
            )
        if before is not None and g.offset != before + 1:
            yield Violation("gap", f"{g.member} got {g.partition}:{g.offset} after {before}")
        last[g.member, g.partition, begun_ns] = g.offset
