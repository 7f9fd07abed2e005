"""Rules for the history of a consumer group: records delivered to its members against records sent.

No record is lost, the records of a key are delivered in order across members, and a record is redelivered only after
the death of a member that had it. Pure functions over recorded histories, like ``history``, whose rules on values and
offsets apply to groups as well.
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
    """A record delivered to a member, noted before it is acknowledged."""

    member: str
    """Incarnation of a member: a replacement has another name."""
    at_ns: int
    """Time by one clock for all members."""
    segment: int
    offset: int
    key: bytes
    value: bytes


@dataclass(slots=True)
class GroupHistory:
    """One topic, as the members of one group observed it."""

    sent: list[Sent] = field(default_factory=list)
    delivered: list[Delivered] = field(default_factory=list)
    deaths_ns: dict[str, int] = field(default_factory=dict)
    """Member -> a time not later than its death: killed, or frozen until the group removed it. The records that a
    frozen one processes after waking are not judged by order: it cannot know yet that others own its segments.
    """


def check_group(history: GroupHistory, *, complete: bool, members_refuse: bool = False) -> list[Violation]:
    """Return the violations of all rules.

    Args:
        history: The observations of the group.
        complete: Whether the group continued until it had read everything that was sent.
        members_refuse: Whether members reject records: those delivered after a rejected record that is not redelivered
            yet come again with it when its segment moves to another member, and no order is judged.
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
    """Yield acknowledged records that no member got."""
    given = {d.value for d in history.delivered}
    for s in history.sent:
        if s.outcome is Outcome.ACKED and s.value not in given:
            yield Violation("lost", f"no member got {short(s.value)}, acknowledged at {s.segment}:{s.offset}")


def in_order(history: GroupHistory) -> Iterator[Violation]:
    """Yield records of a key that precede records that living members have had.

    A member returns to an earlier record of a key, or to the same one, only if the member that had got further is dead;
    and of two living members only one has a key at a time.
    """
    sequence_of = {s.value: s.sequence for s in history.sent}
    furthest: dict[bytes, dict[str, Delivered]] = {}
    had: set[tuple[str, bytes]] = set()
    for d in sorted(history.delivered, key=lambda d: d.at_ns):  # stable: keeps each member's own order
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
                del members[other]  # the dead member's later records are redelivered
        members[d.member] = d
        had.add((d.member, d.value))
