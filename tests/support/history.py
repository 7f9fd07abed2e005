"""Checker of the outcomes that publishers got against the records that subscribers read, like Jepsen's for Kafka.

Pure functions over recorded histories; the simulation and the fault tests on real processes both use them. A history
contains no internals of the cluster, only its users' observations.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    ACKED = "acked"
    """The publisher got an acknowledgement."""
    REFUSED = "refused"
    """The publisher got an error that rules out storage."""
    UNKNOWN = "unknown"
    """The outcome is unknown: an ambiguous error, or the publisher died first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """A record that a publisher sent. ``value`` is unique in the history."""

    producer: str
    key: bytes
    sequence: int
    """Increases with every record of the key. A key has one producer."""
    value: bytes
    outcome: Outcome
    segment: int | None = None
    """Segment in the receipt, if acknowledged; so is ``offset``."""
    offset: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Polled:
    """A record that a reader got. The history keeps them in the order of delivery."""

    reader: str
    """Incarnation of a reader: a restarted one has another name."""
    segment: int
    offset: int
    key: bytes
    value: bytes
    partition: int | None = None
    """Partition of the record, in a topic with partitions: a key may move when their number grows, and is in order in
    each.
    """


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken promise."""

    rule: str
    detail: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.detail}"


@dataclass(slots=True)
class History:
    """One topic's records, as its users observed them."""

    sent: list[Sent] = field(default_factory=list)
    polled: list[Polled] = field(default_factory=list)

    def polled_by(self, reader: str) -> list[Polled]:
        """Return one reader's records, in order."""
        return [p for p in self.polled if p.reader == reader]


def short(value: bytes) -> str:
    """Return enough of a value to find it in a log."""
    return repr(value) if len(value) <= 24 else f"{value[:24]!r}..."


def check(history: History, *, complete: Iterable[str] = ()) -> list[Violation]:
    """Return violations of all rules. ``complete`` names readers from the earliest record to the end, after all was
    sent."""
    rules = (
        one_value_per_offset(history.polled),
        unknown_values(history),
        refused_and_read(history),
        duplicated(history.polled),
        reordered(history),
        not_contiguous(history.polled),
        elsewhere(history),
        lost(history, complete=complete),
    )
    return [violation for rule in rules for violation in rule]


def lost(history: History, *, complete: Iterable[str] = ()) -> Iterator[Violation]:
    """Yield acknowledged records that a complete reader, or one that got past them, did not read.

    A reader "got past" an offset if it read a lower and a higher one of the same segment.
    """
    readers: dict[str, dict[int, set[int]]] = {reader: {} for reader in complete}
    whole = set(readers)
    values: dict[str, set[bytes]] = {reader: set() for reader in whole}
    for p in history.polled:
        readers.setdefault(p.reader, {}).setdefault(p.segment, set()).add(p.offset)
        if p.reader in whole:
            values[p.reader].add(p.value)
    for reader, segments in readers.items():
        for s in history.sent:
            if s.outcome is not Outcome.ACKED:
                continue
            if s.segment is None or s.offset is None:  # the broker that knew the offset died, and the record is kept
                if reader in whole and s.value not in values[reader]:
                    yield Violation("lost", f"{reader} never got {short(s.value)}, acknowledged without an offset")
                continue
            offsets = segments.get(s.segment, set())
            if s.offset in offsets:
                continue
            if reader in whole or (offsets and min(offsets) < s.offset < max(offsets)):
                yield Violation("lost", f"{reader} never got {short(s.value)}, acknowledged at {s.segment}:{s.offset}")


def duplicated(polled: Sequence[Polled]) -> Iterator[Violation]:
    """Yield values at two offsets, and values that a reader got twice."""
    places: dict[bytes, tuple[int, int]] = {}
    got: set[tuple[str, bytes]] = set()
    for p in polled:
        place = places.setdefault(p.value, (p.segment, p.offset))
        if place != (p.segment, p.offset):
            yield Violation(
                "duplicated", f"{short(p.value)} is stored at {place[0]}:{place[1]} and at {p.segment}:{p.offset}"
            )
        if (p.reader, p.value) in got:
            yield Violation("duplicated", f"{p.reader} got {short(p.value)} twice, again at {p.segment}:{p.offset}")
        got.add((p.reader, p.value))


def one_value_per_offset(polled: Sequence[Polled]) -> Iterator[Violation]:
    """Yield offsets with different records for different readers, as after reading data that is later lost."""
    content: dict[tuple[int, int], Polled] = {}
    for p in polled:
        first = content.setdefault((p.segment, p.offset), p)
        if (first.key, first.value) != (p.key, p.value):
            yield Violation(
                "one value per offset",
                f"{p.segment}:{p.offset} is {short(first.value)} for {first.reader}, {short(p.value)} for {p.reader}",
            )


def reordered(history: History) -> Iterator[Violation]:
    """Yield records of a key that a reader got out of order, or at falling offsets."""
    sequence_of = {s.value: s.sequence for s in history.sent}
    last: dict[tuple[str, bytes, int | None], tuple[int, Polled]] = {}
    for p in history.polled:
        sequence = sequence_of.get(p.value)
        if sequence is None:
            continue
        before = last.get((p.reader, p.key, p.partition))
        if before is not None and before[0] >= sequence:
            yield Violation("reordered", f"{p.reader} got {short(p.value)} after {short(before[1].value)}")
        if before is not None and before[1].offset >= p.offset:
            yield Violation(
                "offsets fall",
                f"key {p.key!r} came at {before[1].segment}:{before[1].offset} and then at {p.segment}:{p.offset}",
            )
        last[p.reader, p.key, p.partition] = (sequence, p)


def not_contiguous(polled: Sequence[Polled]) -> Iterator[Violation]:
    """Yield gaps: within a segment a reader gets every offset from its first one on, one after another."""
    last: dict[tuple[str, int], int] = {}
    for p in polled:
        before = last.get((p.reader, p.segment))
        if before is not None and p.offset != before + 1:
            yield Violation("gap", f"{p.reader} got {p.segment}:{p.offset} after {p.segment}:{before}")
        last[p.reader, p.segment] = p.offset


def unknown_values(history: History) -> Iterator[Violation]:
    """Yield records that were never sent with that key."""
    key_of = {s.value: s.key for s in history.sent}
    for p in history.polled:
        if key_of.get(p.value) != p.key:
            yield Violation("never sent", f"{p.reader} got {short(p.value)} of key {p.key!r} at {p.segment}:{p.offset}")


def refused_and_read(history: History) -> Iterator[Violation]:
    """Yield records that were read although the publisher got an error that rules out storage."""
    refused = {s.value for s in history.sent if s.outcome is Outcome.REFUSED}
    for p in history.polled:
        if p.value in refused:
            yield Violation("refused and read", f"{p.reader} got {short(p.value)} at {p.segment}:{p.offset}")


def elsewhere(history: History) -> Iterator[Violation]:
    """Yield records that were read at another offset than their receipts have."""
    receipts = {
        s.value: (s.segment, s.offset) for s in history.sent if s.outcome is Outcome.ACKED and s.offset is not None
    }
    for p in history.polled:
        receipt = receipts.get(p.value)
        if receipt is not None and receipt != (p.segment, p.offset):
            yield Violation(
                "elsewhere",
                f"{short(p.value)} was acknowledged at {receipt[0]}:{receipt[1]}, read at {p.segment}:{p.offset}",
            )
