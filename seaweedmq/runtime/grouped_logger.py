"""Logging of the same failure of many things at about the same time as one line.

A broker that does not answer fails for all of its segments, perhaps hundreds.
"""

import asyncio
import logging
from collections.abc import Sequence

GATHER_S = 0.1
"""Time in seconds for which the first failure waits for others."""
NAMED_MAX = 3


class GroupedLogger:
    """A logger that groups failures by their reason. Belongs to the event loop."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._gathered: dict[tuple[int, str], list[str]] = {}

    def add(self, level: int, what: object, reason: str) -> None:
        """Log ``what: reason`` soon, in one line with everything else that failed for this reason."""
        if not self._gathered:
            asyncio.get_running_loop().call_later(GATHER_S, self._write)
        self._gathered.setdefault((level, reason), []).append(str(what))

    def _write(self) -> None:
        gathered, self._gathered = self._gathered, {}
        for (level, reason), names in gathered.items():
            self._log.log(level, "%s: %s", named(names), reason)


def named(things: Sequence[object]) -> str:
    """Return the first few of ``things``, and the number of the others."""
    more = len(things) - NAMED_MAX
    return ", ".join(map(str, things[:NAMED_MAX])) + (f" and {more} more" if more > 0 else "")
