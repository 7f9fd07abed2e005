"""The rule for converting sealed log files to tables: at once on a calm broker, as late as allowed on a busy one.

Conversion takes some seconds of CPU per GB and competes with publishers and readers for the same cores. No reader waits
for tables: subscribers and Spark also read logs. So conversion yields to high traffic, within two bounds: bytes,
since logs take more space than tables; and age, since readers of the tables alone miss the unconverted records.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import TopicName

BUSY_CPU_SHARE: Final = 0.25
"""CPU share of one core above which a broker is busy."""
STEP_BYTES: Final = 128 * 1024 * 1024
"""Approximate bytes converted before the rule is evaluated again: one table, less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionBounds:
    """The bounds above which a busy broker also converts."""

    backlog_bytes_max: int
    delay_s_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The sealed logs of one segment that are not converted yet."""

    topic: TopicName
    segment: int
    size_bytes: int
    since_s: float
    """Time when the first of the logs began to wait, on any steady clock."""


def next_due(waiting: Iterable[Waiting], now_s: float, cpu_share: float, bounds: ConversionBounds) -> Waiting | None:
    """Return the segment to convert now, the one that waits longest; None if conversion waits for a busy broker."""
    backlog = sorted(waiting, key=lambda w: (w.since_s, w.topic, w.segment))
    if not backlog:
        return None
    is_beyond = (
        sum(w.size_bytes for w in backlog) > bounds.backlog_bytes_max or now_s - backlog[0].since_s > bounds.delay_s_max
    )
    return backlog[0] if cpu_share < BUSY_CPU_SHARE or is_beyond else None


def first_step(logs: Sequence[SegmentFile]) -> tuple[SegmentFile, ...]:
    """Return the first of a segment's logs, in the order they were sealed, to convert in one step.

    A log that begins below an earlier sealed one stays together with it. After a failed fsync, the copy of the affected
    frames is sealed first, and only the copy restores what the disk lost of the failed file.
    """
    size_bytes = 0
    for count, log in enumerate(logs, start=1):
        size_bytes += log.size_bytes
        reached = max(f.base_offset for f in logs[:count])
        if size_bytes >= STEP_BYTES and all(f.base_offset > reached for f in logs[count:]):
            return tuple(logs[:count])
    return tuple(logs)
