"""When sealed log files become tables: at once while the broker is calm, as late as allowed while it is busy. Pure.

Conversion takes some seconds of CPU a GB, and whoever publishes or reads wants the same few cores. Nobody waits for
tables: subscribers and Spark read logs as well. So while traffic is high conversion gives way, within bounds: bytes,
since logs take more room than tables; age, since who reads the tables alone sees nothing of what waits.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import TopicName

BUSY_CPU_SHARE: Final = 0.25
"""Of one core: a broker that takes more is busy."""
STEP_BYTES: Final = 128 * 1024 * 1024
"""About so much is converted before it is asked again: a table, and less than a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversionBounds:
    """Beyond either of them a busy broker converts, too."""

    backlog_bytes_max: int
    delay_s_max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Logs of one segment that are not tables yet and that nothing is added to."""

    topic: TopicName
    segment: int
    size_bytes: int
    since_s: float
    """When the first of them began to wait, on any steady clock."""


def next_due(waiting: Iterable[Waiting], now_s: float, cpu_share: float, bounds: ConversionBounds) -> Waiting | None:
    """The segment whose logs, or the first of them, are converted now: the one that waits longest. None: none is.

    Args:
        now_s: on the clock of ``since_s``.
        cpu_share: what the broker takes of one core.
    """
    backlog = sorted(waiting, key=lambda w: (w.since_s, w.topic, w.segment))
    if not backlog:
        return None
    is_beyond = (
        sum(w.size_bytes for w in backlog) > bounds.backlog_bytes_max or now_s - backlog[0].since_s > bounds.delay_s_max
    )
    return backlog[0] if cpu_share < BUSY_CPU_SHARE or is_beyond else None


def first_step(logs: Sequence[SegmentFile]) -> tuple[SegmentFile, ...]:
    """As many of a segment's logs, in the order they were sealed, as are converted in one go.

    What begins below a log that was sealed before it stays together with that one: after a failed fsync the copy of
    what it was for is sealed first, and only the copy makes good what the disk lost of the file that failed.
    """
    size_bytes = 0
    for count, log in enumerate(logs, start=1):
        size_bytes += log.size_bytes
        reached = max(f.base_offset for f in logs[:count])
        if size_bytes >= STEP_BYTES and all(f.base_offset > reached for f in logs[count:]):
            return tuple(logs[:count])
    return tuple(logs)
