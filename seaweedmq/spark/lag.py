"""Lag of streaming queries, printed at each progress and kept for inspection."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

QUERIES_MAX: Final = 1_000
"""Maximum number of queries remembered; older ones are dropped."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not typed here
    """A listener that prints one line for each progress of each query over a topic.

    Install it with ``spark.streams.addListener(seaweedmq.spark.LagListener())``::

        copy: batch 12, 40,000 rows, 80,000 rows/s, 1,234 records behind
    """

    def __init__(self, tell: Callable[[str], None] = _to_stderr) -> None:
        """Create a listener that passes each line to ``tell``; the default writes to stderr."""
        self._tell = tell
        self.behind: dict[str, int] = {}
        """Records committed and not yet planned, over all topics of a query, as of its last progress.

        The key is the query's name, or its id if it has no name.
        """

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Do nothing: a new query has no progress."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Print a line if the query reads a topic."""
        progress = event.progress
        behind = [lag for source in progress.sources if (lag := records_behind(source.latestOffset)) is not None]
        if not behind:
            return
        name = progress.name or str(progress.id)
        self.behind.pop(name, None)
        self.behind[name] = sum(behind)
        if len(self.behind) > QUERIES_MAX:
            del self.behind[next(iter(self.behind))]
        self._tell(
            f"{name}: batch {progress.batchId}, {progress.numInputRows:,} rows, "
            f"{progress.processedRowsPerSecond or 0:,.0f} rows/s, {sum(behind):,} records behind"
        )

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Do nothing: the last known lag still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Drop the lag of a query without a name; a named one keeps its last lag for later inspection."""
        self.behind.pop(str(event.id), None)


def records_behind(latest_offset: str | Mapping[str, Any] | None) -> int | None:
    """Return the lag from a source's ``latestOffset``; None if the source is not a SeaweedMQ topic."""
    try:
        offset = json.loads(latest_offset) if isinstance(latest_offset, str) else latest_offset
    except ValueError:
        return None
    behind = offset.get("behind") if isinstance(offset, Mapping) and "segments" in offset else None
    return behind if isinstance(behind, int) else None
