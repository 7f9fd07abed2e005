"""What the members of a consumer group were given, against what was sent: the rules that hold for a group as a whole.

Nothing is lost, the records of a key come in order whoever gets them, and a record comes again only after the death of
a member that had it. Pure functions over recorded histories, like ``history``, whose rules on values and places apply
to groups as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.support.history import (
    History,
    Outcome,
    Polled,
    Sent,
    Violation,
    elsewhere,
    one_value_per_offset,
    refused_and_read,
    short,
    unknown_values,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """One record that a member was given. Written down before it is acknowledged."""

    member: str
    """One life of one member: who replaces it is another."""
    at_ns: int
    """Of one clock for all members."""
    segment: int
    offset: int
    key: bytes
    value: bytes


@dataclass(slots=True)
class GroupHistory:
    """One topic, as the members of one group saw it."""

    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    deaths_ns: dict[str, int] = field(default_factory=dict)
    """Member -> a time not later than its death: killed, or frozen for so long that the group goes on without it. The
    order in which a frozen one goes on when it wakes is not judged: it can not know yet that others have its segments.
    """


def check_group(history: GroupHistory, *, complete: bool, members_refuse: bool = False) -> list[Violation]:
    """All rules. ``complete``: the group went on until it had read everything that was sent. ``members_refuse``: what
    was had behind a record that was refused, and not yet delivered again, comes again with it when its segment is given
    to another member; no order is judged then.
    """
    polled = [
        Polled(reader=d.member, segment=d.segment, offset=d.offset, key=d.key, value=d.value) for d in history.delivered
    ]
    records = History(history.sent, polled)
    rules = (
        one_value_per_offset(polled),
        unknown_values(records),
        refused_and_read(records),
        elsewhere(records),
        iter(()) if members_refuse else in_order(history),
        lost_by_group(history) if complete else iter(()),
    )
    return [violation for rule in rules for violation in rule]


def lost_by_group(history: GroupHistory) -> Iterator[Violation]:
    """Every acknowledged record was given to some member."""
    given = {d.value for d in history.delivered}
    for s in history.sent:
        if s.outcome is Outcome.ACKED and s.value not in given:
            yield Violation("lost", f"no member got {short(s.value)}, acknowledged at {s.segment}:{s.offset}")


def in_order(history: GroupHistory) -> Iterator[Violation]:
    """Along a key every record comes after those that living members have had.

    So a member that goes back to an earlier record of a key, or to the same one, does so because whoever had got
    further is dead; and of two living members only one has a key at a time.
    """
    sequence_of = {s.value: s.sequence for s in history.sent}
    furthest: dict[bytes, dict[str, Delivered]] = {}
    had: set[tuple[str, bytes]] = set()
    for d in sorted(history.delivered, key=lambda d: d.at_ns):  # stable: a member's own order stays
        sequence = sequence_of.get(d.value)
        if sequence is None or d.at_ns > history.deaths_ns.get(d.member, d.at_ns):
            continue
        members = furthest.setdefault(d.key, {})
        for other, last in list(members.items()):
            if sequence > sequence_of[last.value]:
                continue
            if other == d.member or d.at_ns < history.deaths_ns.get(other, d.at_ns + 1):
                rule = "duplicated" if (other, d.value) in had else "reordered"
                yield Violation(
                    rule, f"{d.member} got {short(d.value)} after {other}, which lives, got {short(last.value)}"
                )
            else:
                del members[other]  # what the dead one had beyond this comes again
        members[d.member] = d
        had.add((d.member, d.value))
