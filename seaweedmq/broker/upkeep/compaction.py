"""Small tables of topics that ask for it become large ones, while the broker is calm: ``core.files.compaction``."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Collection

from seaweedmq.broker.upkeep.maintained_segments import is_maintainer
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.files.compaction import AUTO_TARGET_BYTES, TableMerge, due_merge, granular
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
"""Merges a round: conversion has its turn in between, and retention."""
DAMAGED_PAUSE_S = 3_600.0
"""A segment with a damaged table is not tried again for so long: the error in the log is for an operator."""


class AutoCompaction:
    """Merges tables of the segments that this broker looks after."""

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
        """``cpu_share``: what this process took of one core lately."""
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._cpu_share = cpu_share
        self._pause_s = max(config.maintenance_interval_s, config.log_grace_s / 4)
        self._complaints = OnceLogger(log)
        self._due: dict[TopicName, float] = {}
        """Event loop time, seconds, at which a topic is worth a look again. Those that are not in it are due."""
        self._damaged: dict[tuple[TopicName, int, int], float] = {}
        """Name and uid of the topic, segment -> until when it is left alone."""
        self._loop = asyncio.get_running_loop()

    async def round(self, converted: Collection[TopicName]) -> None:
        """Merge what is due, of topics that just got tables and from time to time of the others."""
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
                what = f"merging tables of {name}"
                try:
                    steps = await self._topic(topic, steps)
                    self._complaints.over(what)
                except SeaweedMQError as error:
                    self._complaints.add(what, error)
                if steps:
                    self._due[name] = self._loop.time() + self._pause_s

    def _is_calm(self) -> bool:
        return self._cpu_share() < BUSY_CPU_SHARE

    async def _topic(self, topic: Topic, steps: int) -> int:
        """How many steps are left: 0 if there may be more to do."""
        tables: defaultdict[int, list[SegmentFile]] = defaultdict(list)
        for file in await self._store.list_topic_files(topic.name):
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
                listed = await self._store.list_files(topic.name, number)
                files = [f for f in listed if f.kind is FileKind.TABLE]
        return steps

    def _next(self, topic: Topic, segment: Segment, files: list[SegmentFile]) -> TableMerge | None:
        if (topic.name, topic.uid, segment.id) in self._damaged:
            return None
        low = topic.low_watermark(segment.slots)
        live = [f for f in files if (f.end_offset or 0) > low]
        return due_merge(live, granular(AUTO_TARGET_BYTES, topic.retention_bytes))

    async def _merge(self, topic: Topic, merge: TableMerge) -> bool:
        """Whether there may be more to do."""
        now = self._view.topics.get(topic.name)
        if now is None or now.uid != topic.uid:
            return False  # it was deleted, even if there is another one of its name
        try:
            made = await self._converter.compact(now, merge.tables)
        except (NotFound, Unavailable) as error:
            log.info("%s: not merged now: %s", merge, error)  # another process was faster
            return False
        except Corrupt as error:
            log.error("%s: not merged, the tables stay as they are: %s", merge, error)
            made = []
        if not made:
            key = topic.name, topic.uid, merge.tables[0].segment
            self._damaged[key] = self._loop.time() + DAMAGED_PAUSE_S
            return False
        log.info("%s: %d tables became %s", topic.name, len(merge.tables), ", ".join(t.path for t in made))
        return True
