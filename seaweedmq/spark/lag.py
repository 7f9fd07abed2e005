"""How far streaming queries are behind: printed at each progress, and kept to be looked at."""

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
"""Queries remembered, the last ones; those that ended are forgotten."""


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"{line}\n")


class LagListener(StreamingQueryListener):  # type: ignore[misc]  # pyspark is not typed here
    """``spark.streams.addListener(seaweedmq.spark.LagListener())``: one line for each progress of each query.

    ::

        copy: batch 12, 40,000 rows, 80,000 rows/s, 1,234 records behind
    """

    def __init__(self, tell: Callable[[str], None] = _to_stderr) -> None:
        """``tell`` takes each line; the default writes it to stderr."""
        self._tell = tell
        self.behind: dict[str, int] = {}
        """By name of the query, or its id if it has none: records that were committed and not planned yet, of all its
        topics, as of its last progress."""

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's names
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Print a line if the query reads one of our topics."""
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
        """What was last known still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Forget it. Queries with names are looked at after their end; the id is of no use to anybody then."""
        self.behind.pop(str(event.id), None)


def records_behind(latest_offset: str | Mapping[str, Any] | None) -> int | None:
    """What a source's ``latestOffset`` in the progress of a query says; None if the source is none of ours."""
    try:
        offset = json.loads(latest_offset) if isinstance(latest_offset, str) else latest_offset
    except ValueError:
        return None
    behind = offset.get("behind") if isinstance(offset, Mapping) and "segments" in offset else None
    return behind if isinstance(behind, int) else None
