"""Rewrite of tables that hold deleted and living records, so that no reader of files finds the deleted ones."""

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

REWRITES_PER_LOOK = 8
"""Tables of a topic that are rewritten before other topics have their turn."""
DAMAGED_PAUSE_S = 3_600.0
"""Seconds for which a damaged table is left alone: the error in the log is for an operator."""


class DeletedRecords:
    """Tables of the topics that this broker maintains, and since when a low watermark lies in each.

    A table is rewritten once the low watermark has been in it for ``log_grace_s``. The new table begins at the low
    watermark of that moment, and the next one that lies in it has to wait as long. So each table is rewritten at most
    once in a grace period, however often records are deleted.
    """

    def __init__(self, *, config: BrokerConfig, converter: TableConverter) -> None:
        self._grace_s = config.log_grace_s
        self._converter = converter
        self._due: dict[TopicName, tuple[int, DueSince[str]]] = {}
        """Uid of the topic, and its tables by path."""
        self._damaged: dict[str, float] = {}
        """Path -> event loop time, seconds, until which the table is left alone."""
        self._loop = asyncio.get_running_loop()

    def keep_only(self, names: Container[TopicName]) -> None:
        """Forget topics that were deleted."""
        self._due = {name: due for name, due in self._due.items() if name in names}

    def forget(self, name: TopicName) -> None:
        """Forget a topic that this broker no longer maintains."""
        self._due.pop(name, None)

    async def rewrite(self, topic: Topic, segments: Iterable[Listed]) -> bool:
        """Rewrite what is due of a topic.

        Returns:
            Whether more is due now.

        Raises:
            StorageFailed, DeadlineExceeded: The rest is tried again at the next look.
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
        for merge in ready[:REWRITES_PER_LOOK]:
            await self._rewrite(topic, merge)
        return len(ready) > REWRITES_PER_LOOK

    async def _rewrite(self, topic: Topic, merge: TableMerge) -> None:
        (table,) = merge.tables
        try:
            made = await self._converter.compact(topic, merge.tables, low_watermark=merge.low_watermark)
        except (NotFound, Unavailable) as error:
            log.info("deleted records stay in %s for now: %s; retrying", table.path, error)
        except Corrupt as error:
            log.error("deleted records stay in %s: %s", table.path, error)
            self._damaged[table.path] = self._loop.time() + DAMAGED_PAUSE_S
        else:
            log.info(
                "deleted records removed: %d of %s, which became %s",
                merge.leaves_out,
                table.path,
                ", ".join(t.path for t in made),
            )
