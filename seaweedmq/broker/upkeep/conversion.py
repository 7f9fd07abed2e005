"""Conversion of complete log files into tables, in the segments that this broker serves or maintains."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.upkeep.maintained_segments import MaintainedSegments
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.files.conversion import ConversionBounds, Waiting, first_step, next_due
from seaweedmq.core.files.retention import is_unconverted
from seaweedmq.errors import Corrupt, SeaweedMQError
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore, TableConverter
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Work:
    """The log files of one segment that wait for conversion."""

    waiting: Waiting
    convert: Callable[[], Awaitable["_Work | None"]]
    """Function that converts the first of them and returns the rest; None if no more is to be done now."""


class Conversion:
    """A task that converts log files, one step at a time, as far as ``core.files.conversion`` allows."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        broker_id: str,
        view: ClusterView,
        store: SegmentStore,
        converter: TableConverter,
        segments: Callable[[], Iterable[OpenSegment]],
        cpu_share: Callable[[], float],
    ) -> None:
        """Create the task. ``cpu_share`` returns the recent CPU use of this process, as a share of one core."""
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._segments = segments
        self._cpu_share = cpu_share
        self._bounds = ConversionBounds(
            backlog_bytes_max=config.conversion_backlog_bytes_max, delay_s_max=config.conversion_delay_s_max
        )
        self._shares: dict[TopicName, MaintainedSegments] = {}
        self._since_s: dict[str, float] = {}
        """Path of a waiting log file -> event loop time, in seconds, at which it was found."""
        self._since_before_s: dict[str, float] = {}
        """The same mapping as of the last round."""
        self._converted: set[TopicName] = set()
        self._failures_log = OnceLogger(log)
        self._loop = asyncio.get_running_loop()

    async def round(self) -> set[TopicName]:
        """Convert until nothing is due, and return the topics that got tables."""
        self._converted = set()
        self._since_before_s, self._since_s = self._since_s, {}
        works = [work async for work in self._backlog()]
        backlog = {(w.waiting.topic, w.waiting.segment): w for w in works}
        while due := self._due(backlog.values()):
            key = due.topic, due.segment
            rest = await backlog.pop(key).convert()
            if rest is not None:
                backlog[key] = rest
        return self._converted

    def _due(self, backlog: Iterable[_Work]) -> Waiting | None:
        return next_due((work.waiting for work in backlog), self._loop.time(), self._cpu_share(), self._bounds)

    async def _backlog(self) -> AsyncIterator[_Work]:
        for segment in list(self._segments()):
            if segment.files.sealed:
                yield self._of_open(segment)
        for name in self._shares.keys() - self._view.topics.keys():
            del self._shares[name]
        for topic in list(self._view.topics.values()):
            what = f"search for log files of {topic.name} that are not converted"
            try:
                async for work in self._of_sealed(topic):
                    yield work
                self._failures_log.over(what)
            except SeaweedMQError as error:
                self._failures_log.add(what, error)

    def _of_open(self, segment: OpenSegment) -> _Work:
        async def convert() -> _Work | None:
            if segment.log.committed < segment.log.flushed:
                return None  # the lease is in doubt: uncommitted frames may never be part of the segment
            logs = first_step(segment.files.sealed)
            # Only below ``flushed``: after a failed fsync the frames beyond may never be part of the segment.
            if not await self._convert(segment.topic, logs, segment.log.flushed):
                return None
            del segment.files.sealed[: len(logs)]
            return self._of_open(segment) if segment.files.sealed else None

        return _Work(waiting=self._waiting(segment.segment, segment.files.sealed), convert=convert)

    async def _of_sealed(self, topic: Topic) -> AsyncIterator[_Work]:
        share = self._shares.get(topic.name)
        if share is None or share.uid != topic.uid:
            share = self._shares[topic.name] = MaintainedSegments(topic, self._broker_id, self._view)
        mine = share.take()
        if not mine:
            return
        # One listing of the topic: listing by segment would read the shared folder of tables each time.
        files: defaultdict[int, list[SegmentFile]] = defaultdict(list)
        for file in await self._store.list_topic_files(topic.name, uid=topic.uid):
            files[file.segment].append(file)
        for segment in mine:
            logs = [f for f in files[segment.id] if f.kind is FileKind.LOG]
            if any(is_unconverted(f, files[segment.id], segment.end_offset) for f in logs):
                convert = partial(self._convert_sealed, topic, segment, logs, share)
                yield _Work(waiting=self._waiting(segment, logs), convert=convert)
            else:
                share.settle(segment)

    async def _convert_sealed(
        self, topic: Topic, segment: Segment, logs: Sequence[SegmentFile], share: MaintainedSegments
    ) -> None:
        """Convert all log files in one step: files of several writers may need each other, and most are converted."""
        if await self._convert(topic, logs, segment.end_offset):
            share.settle(segment)

    def _waiting(self, segment: Segment, logs: Sequence[SegmentFile]) -> Waiting:
        now_s = self._loop.time()
        for file in logs:
            self._since_s.setdefault(file.path, self._since_before_s.get(file.path, now_s))
        return Waiting(
            topic=segment.topic,
            segment=segment.id,
            size_bytes=sum(f.size_bytes for f in logs),
            since_s=min(self._since_s[f.path] for f in logs),
        )

    async def _convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> bool:
        now = self._view.topics.get(topic.name)
        if now is None or now.uid != topic.uid:
            return False  # the topic was deleted, or recreated
        what = f"conversion of log files of {topic.name}#{logs[0].segment}"
        try:
            tables = await self._converter.convert(now, logs, end_offset)
        except SeaweedMQError as error:
            self._failures_log.add(what, error, logging.ERROR if isinstance(error, Corrupt) else None)
            return False
        self._failures_log.over(what)
        log.info(
            "log files converted: %s, %d to %s", topic.name, len(logs), ", ".join(t.path for t in tables) or "nothing"
        )
        self._converted.add(topic.name)
        return True
