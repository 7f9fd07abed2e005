"""Automatic merging of small tables, in topics with ``auto_compact``, while the broker has idle CPU.

``core.files.compaction`` has the rules.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection

from seaweedmq.broker.upkeep.maintained_segments import is_maintainer
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.files.compaction import AUTO_TARGET_BYTES, TableMerge, due_merge, target_table_bytes
from seaweedmq.core.files.conversion import BUSY_CPU_SHARE
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore, TableConverter
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

STEPS_MAX = 16
"""Most merges in one round. Conversion and retention run between rounds."""
DAMAGED_PAUSE_S = 3_600.0
"""Pause in seconds before a segment with a damaged table is retried. The logged error needs an operator."""


class AutoCompaction:
    """A task that merges tables of the segments that this broker maintains."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        broker_id: str,
        view: ClusterView,
        store: SegmentStore,
        converter: TableConverter,
        cpu_share: Callable[[], float],
    ) -> None:
        """Create the task. ``cpu_share`` returns the recent CPU use of this process, as a share of one core."""
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._cpu_share = cpu_share
        self._pause_s = max(config.maintenance_interval_s, config.log_grace_s / 4)
        self._failures_log = OnceLogger(log)
        self._due: dict[TopicName, float] = {}
        """Topic -> time of its next check on the event loop's clock, in seconds. An absent topic is due."""
        self._damaged: dict[tuple[TopicName, int, int], float] = {}
        """Topic name, topic uid and segment id -> event loop time, in seconds, until which the segment is skipped."""
        self._loop = asyncio.get_running_loop()

    async def round(self, converted: Collection[TopicName]) -> None:
        """Merge due tables: of topics in ``converted``, which just got tables, and at intervals of the others."""
        wanted = {name: topic for name, topic in self._view.topics.items() if topic.settings.auto_compact}
        for name in self._due.keys() - wanted.keys():
            del self._due[name]
        now = self._loop.time()
        self._damaged = {key: until for key, until in self._damaged.items() if until > now}
        for name in converted:
            self._due.pop(name, None)
        steps = STEPS_MAX
        for name, topic in wanted.items():
            if steps and self._is_calm() and self._due.get(name, now) <= now:
                what = f"merge of tables of {name}"
                try:
                    steps = await self._topic(topic, steps)
                    self._failures_log.over(what)
                except SeaweedMQError as error:
                    self._failures_log.add(what, error)
                if steps:
                    self._due[name] = self._loop.time() + self._pause_s

    def _is_calm(self) -> bool:
        return self._cpu_share() < BUSY_CPU_SHARE

    async def _topic(self, topic: Topic, steps: int) -> int:
        """Merge due tables of a topic; return the number of steps left. 0 means that more may be due."""
        tables: defaultdict[int, list[SegmentFile]] = defaultdict(list)
        for file in await self._store.list_topic_files(topic.name, uid=topic.uid):
            if file.kind is FileKind.TABLE:
                tables[file.segment].append(file)
        for number, segment in list(self._view.segments_of(topic.name).items()):
            files = tables[number]
            while is_maintainer(segment, self._broker_id, self._view):
                merge = self._next(topic, segment, files)
                if merge is None:
                    break
                if not steps or not self._is_calm():
                    return 0
                steps -= 1
                if not await self._merge(topic, merge):
                    break
                listed = await self._store.list_files(topic.name, number, uid=topic.uid)
                files = [f for f in listed if f.kind is FileKind.TABLE]
        return steps

    def _next(self, topic: Topic, segment: Segment, files: list[SegmentFile]) -> TableMerge | None:
        if (topic.name, topic.uid, segment.id) in self._damaged:
            return None
        low = topic.low_watermark(segment.slots)
        live = [f for f in files if (f.end_offset or 0) > low]
        return due_merge(live, target_table_bytes(AUTO_TARGET_BYTES, topic.retention_bytes))

    async def _merge(self, topic: Topic, merge: TableMerge) -> bool:
        """Merge tables; return whether more merges of the segment may be due."""
        now = self._view.topics.get(topic.name)
        if now is None or now.uid != topic.uid:
            return False  # the topic was deleted, or recreated
        try:
            made = await self._converter.compact(now, merge.tables)
        except (NotFound, Unavailable) as error:
            log.info("merge skipped: %s: %s", merge, error)  # another process merged or removed the tables
            return False
        except Corrupt as error:
            log.error("merge failed: %s, the tables are unchanged: %s", merge, error)
            made = []
        if not made:
            key = topic.name, topic.uid, merge.tables[0].segment
            self._damaged[key] = self._loop.time() + DAMAGED_PAUSE_S
            return False
        log.info("tables merged: %s, %d tables into %s", topic.name, len(merge.tables), ", ".join(t.path for t in made))
        return True
