"""Rewriting of tables with deleted and live records, so that no reader of files finds the deleted ones."""

import asyncio
import logging
from collections.abc import Container, Iterable

from seaweedmq.core.clock_doubt import DueSince
from seaweedmq.core.files.compaction import TableMerge, has_log_below, partly_deleted
from seaweedmq.core.files.retention import Listed
from seaweedmq.errors import Corrupt, NotFound, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import TableConverter

log = logging.getLogger(__name__)

REWRITES_PER_ROUND = 8
"""Most tables of a topic that are rewritten before other topics are checked."""
DAMAGED_PAUSE_S = 3_600.0
"""Pause in seconds before a damaged table is retried. The logged error needs an operator."""


class DeletedRecords:
    """The tables with deleted records in the topics that this broker maintains.

    A table is rewritten once a low watermark has been within it for ``log_grace_s``. The new table begins at the low
    watermark of that moment, and a later low watermark within it waits as long. So each table is rewritten at most once
    in a grace period, regardless of how often records are deleted.
    """

    def __init__(self, *, config: BrokerConfig, converter: TableConverter) -> None:
        self._grace_s = config.log_grace_s
        self._converter = converter
        self._due: dict[TopicName, tuple[int, DueSince[str]]] = {}
        """Topic -> its uid, and the paths of its tables with a low watermark within them, with the time since when."""
        self._damaged: dict[str, float] = {}
        """Path -> event loop time, in seconds, until which the table is skipped."""
        self._loop = asyncio.get_running_loop()

    def keep_only(self, names: Container[TopicName]) -> None:
        """Drop the state of all topics except ``names``."""
        self._due = {name: due for name, due in self._due.items() if name in names}

    def forget(self, name: TopicName) -> None:
        """Drop the state of a topic that this broker no longer maintains."""
        self._due.pop(name, None)

    async def rewrite(self, topic: Topic, segments: Iterable[Listed]) -> bool:
        """Rewrite up to ``REWRITES_PER_ROUND`` due tables of a topic with these files; return whether more are due.

        On StorageFailed or DeadlineExceeded, the next call retries the rest.
        """
        now_s = self._loop.time()
        self._damaged = {path: until_s for path, until_s in self._damaged.items() if until_s > now_s}
        found: dict[str, tuple[TableMerge, Listed]] = {}
        for listed in segments:
            merge = partly_deleted(listed.files, listed.low_watermark) if listed.low_watermark else None
            if merge is not None:
                found[merge.tables[0].path] = merge, listed
        uid, since = self._due.get(topic.name, (topic.uid, DueSince[str]()))
        if uid != topic.uid:
            since = DueSince()
        self._due[topic.name] = topic.uid, since
        ready = [
            found[path][0]
            for path in since.confirmed(found, now_s, self._grace_s)
            if path not in self._damaged and not has_log_below(found[path][1].files, found[path][1].low_watermark)
        ]
        for merge in ready[:REWRITES_PER_ROUND]:
            await self._rewrite(topic, merge)
        return len(ready) > REWRITES_PER_ROUND

    async def _rewrite(self, topic: Topic, merge: TableMerge) -> None:
        (table,) = merge.tables
        try:
            made = await self._converter.compact(topic, merge.tables, low_watermark=merge.low_watermark)
        except (NotFound, Unavailable) as error:
            log.info("rewrite failed: deleted records remain in %s: %s; retrying", table.path, error)
        except Corrupt as error:
            log.error("rewrite failed: deleted records remain in %s: %s", table.path, error)
            self._damaged[table.path] = self._loop.time() + DAMAGED_PAUSE_S
        else:
            log.info(
                "deleted records removed: %d from %s, rewritten as %s",
                merge.leaves_out,
                table.path,
                ", ".join(t.path for t in made),
            )
