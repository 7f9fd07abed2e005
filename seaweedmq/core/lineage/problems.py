"""Unrecoverable segments: open ones without a live replica whose files do not show where they end.

Such a segment is neither read nor written until an operator repairs the files. The leader records the reason with the
segment, so that every broker answers clients with it, and retries with growing pauses.
"""

from collections.abc import Iterable

from seaweedmq.errors import Corrupt
from seaweedmq.model.segment import PROBLEM_CHARS_MAX, Segment

SHOWN_MAX = 3
"""Number of segments of a topic whose problems are spelled out."""
RETRY_S_FIRST, RETRY_S_MAX = 5.0, 60.0
"""Shortest and longest pause between attempts: each attempt reads the files of the segment."""


def retry_pause_s(attempts: int) -> float:
    """Return the pause after ``attempts`` failed attempts, from 1."""
    return min(RETRY_S_MAX, RETRY_S_FIRST * 2.0 ** min(attempts - 1, 30))


def problem_of(segment: Segment, error: Exception) -> str:
    """Return why a segment cannot be recovered, at most ``PROBLEM_CHARS_MAX`` long; the error's text names the file."""
    before = f"{segment} cannot be recovered: "
    behind = f"; repair or restore its files, recovery is retried within {RETRY_S_MAX:g} s"
    reason, room = str(error), PROBLEM_CHARS_MAX - len(before) - len(behind)
    return before + (reason if len(reason) <= room else f"{reason[: room - 3]}...") + behind


def check_recoverable(segment: Segment) -> None:
    """Raise Corrupt, naming the file, if the segment cannot be recovered."""
    if segment.problem:
        raise Corrupt(segment.problem)


def describe_problems(segments: Iterable[Segment]) -> str:
    """Return the problems of a topic's segments in one text; "" if there are none."""
    problems = [segment.problem for segment in segments if segment.problem]
    more = len(problems) - SHOWN_MAX
    return "; ".join([*problems[:SHOWN_MAX], *([f"{more} more segments cannot be recovered"] if more > 0 else [])])
