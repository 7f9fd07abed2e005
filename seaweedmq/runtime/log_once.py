"""Logging of repeated failures and rejections: each is logged once, then counted."""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

REMEMBERED_MAX = 1_000
REASONS_MAX = 3
"""Reasons that are logged per failing thing: some reasons name another address, or time, at each attempt."""


REJECTIONS_PAUSE_S = 60.0
"""Least time in seconds between two lines about rejections."""


@dataclass(slots=True)
class _Failures:
    """The failures of one thing since it last succeeded."""

    since_s: float
    failures: int = 0
    latest: str = ""
    reasons: set[str] = field(default_factory=set)


class OnceLogger:
    """A logger for failures of things that are retried. Belongs to the event loop."""

    def __init__(self, log: logging.Logger, level: int = logging.WARNING) -> None:
        self._log = log
        self._level = level
        self._failing: dict[str, _Failures] = {}

    def add(self, what: str, error: BaseException, level: int | None = None) -> None:
        """Log that ``what`` failed and is retried, unless that was already logged for this reason."""
        now = asyncio.get_running_loop().time()
        if what not in self._failing and len(self._failing) >= REMEMBERED_MAX:
            self._failing.clear()
        failing = self._failing.setdefault(what, _Failures(now))
        failing.failures += 1
        failing.latest = reason = str(error) or type(error).__name__
        if reason not in failing.reasons and len(failing.reasons) < REASONS_MAX:
            failing.reasons.add(reason)
            self._log.log(
                level or self._level, "%s: %s%s", what, reason, "" if reason.endswith("retry") else "; retrying"
            )

    def over(self, what: str) -> None:
        """Log that ``what`` succeeded after failures; without failures, do nothing."""
        failing = self._failing.pop(what, None)
        if failing is not None:
            lasted_s = asyncio.get_running_loop().time() - failing.since_s
            self._log.info("%s: succeeds again after %d failures in %.1f s", what, failing.failures, lasted_s)

    def lasting(self) -> Mapping[str, str]:
        """Return the latest reason of everything that fails at present, with the number of failures."""
        now = asyncio.get_running_loop().time()
        return {
            what: f"{failing.latest} ({failing.failures} failures in {now - failing.since_s:.0f} s)"
            for what, failing in self._failing.items()
        }

    def forget(self, what: str) -> None:
        """Drop the failures of something that is no longer retried."""
        self._failing.pop(what, None)

    def on_retry(self, what: str) -> Callable[[int, BaseException], None]:
        """Return a callback for ``runtime.retrying`` that adds each failure of ``what``."""
        return lambda _, error: self.add(what, error)


class RejectionLog:
    """A logger for rejected requests of one kind. Belongs to the event loop.

    Thousands of clients may retry at once, so the log has the first rejection and then periodic counts.
    """

    def __init__(self, log: logging.Logger, what: str) -> None:
        self._log = log
        self._what = what
        self._count = 0
        self._next_line_s = -math.inf

    def add(self, error: BaseException) -> None:
        """Log that a request was rejected with this error, or count it for the next line."""
        self._count += 1
        now = asyncio.get_running_loop().time()
        if now >= self._next_line_s:
            self._log.warning("%s rejected: %d since the last such line: %s", self._what, self._count, error)
            self._count, self._next_line_s = 0, now + REJECTIONS_PAUSE_S
