"""Files behind the stream: seal old logs, have them converted, merge small tables, delete what may go by now."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.upkeep.compaction import AutoCompaction
from seaweedmq.broker.upkeep.conversion import Conversion
from seaweedmq.broker.upkeep.share import is_looked_after
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.files.retention import Listed, expired_files, retention_policy
from seaweedmq.core.files.rolling import roll_bounds
from seaweedmq.core.lineage.pruning import CLOCK_DOUBT_S, prunable
from seaweedmq.errors import SeaweedMQError, StorageFailed
from seaweedmq.model.calls import ReportEmptied
from seaweedmq.model.config import US_PER_S, BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore, TableConverter
from seaweedmq.runtime.log_once import Complaints

log = logging.getLogger(__name__)

EMPTIED_PER_REPORT = 1_000


class Maintenance:
    """Looks after the files of the segments this broker owns, and of its share of the sealed ones."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        broker_id: str,
        view: ClusterView,
        store: SegmentStore,
        converter: TableConverter,
        conversion: Conversion,
        compaction: AutoCompaction,
        segments: Callable[[], Iterable[OpenSegment]],
        wall_us: Callable[[], int],
        report_emptied: Callable[[ReportEmptied], Awaitable[None]],
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._conversion = conversion
        self._compaction = compaction
        self._segments = segments
        self._wall_us = wall_us
        self._report_emptied = report_emptied
        self._emptied: dict[TopicName, tuple[int, dict[int, float]]] = {}
        """Uid of the topic; its sealed segments without any file -> event loop time since when."""
        self._files_due: dict[TopicName, float] = {}
        """Event loop time, seconds, at which a topic's files are worth a look again. Topics that are not in it are due.
        Not the wall clock: one that is set back would stop retention until it is there again."""
        self._published: dict[TopicName, tuple[int, int]] = {}
        """Topics of this broker's share of which other programs were told which tables count -> uid, and a hash of the
        names that its tables had. Whoever made or removed others, on whatever broker, may have been killed before it
        could tell."""
        self._complaints = Complaints(log)
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Look things over until cancelled, once an interval."""
        while True:
            await asyncio.sleep(self._config.maintenance_interval_s)
            for segment in list(self._segments()):
                segment.files.retire_if_older(roll_bounds(segment.topic, self._config).age_s)
                segment.forget_older(self._config.cache_age_s)
            converted = await self._conversion.round()
            for name in converted:
                self._files_due.pop(name, None)
            await self._compaction.round(converted)
            await self._release_last_logs()
            for known in (self._emptied, self._files_due, self._published):
                for name in known.keys() - self._view.topics.keys():
                    del known[name]
            for name in list(self._view.topics):
                try:
                    await self._look_after(name)
                except SeaweedMQError as error:
                    log.warning("%s: files not looked after now, tried again soon: %s", name, error)

    async def _release_last_logs(self) -> None:
        for segment in list(self._segments()):
            try:
                await segment.release_last_log()
            except StorageFailed as error:
                self._complaints.add(f"{segment.segment}: its newest log file stays", error)

    async def _look_after(self, name: TopicName) -> None:
        """The whole topic's files are one broker's business, since retention by size counts them together."""
        topic = self._view.topics.get(name)
        if topic is None:
            return
        segments = self._view.segments_of(name)
        first = next(iter(segments.values()), None)
        is_mine = first is not None and is_looked_after(first, self._broker_id, self._view)
        if not is_mine:
            self._published.pop(name, None)  # what becomes of its tables from here on is seen by another broker
        elif self._files_due.get(name, 0) <= self._loop.time():
            await self._expire(topic, list(segments.values()))

    async def _files_of(self, name: TopicName) -> defaultdict[int, list[SegmentFile]]:
        """By segment."""
        files: defaultdict[int, list[SegmentFile]] = defaultdict(list)
        for file in await self._store.list_topic_files(name):
            files[file.segment].append(file)
        return files

    def _as_it_is_now(self, topic: Topic) -> Topic | None:
        """None if it was deleted, even if there is another one of its name."""
        now = self._view.topics.get(topic.name)
        return now if now is not None and now.uid == topic.uid else None

    async def _expire(self, topic: Topic, segments: Sequence[Segment]) -> None:
        files = await self._files_of(topic.name)
        if self._as_it_is_now(topic) is None:
            return  # these may be the files of another one
        listed = [Listed(s.end_offset, files[s.id], topic.low_watermark(s.slots)) for s in segments]
        policy = retention_policy(topic, self._config)
        expired = expired_files(listed, policy, self._wall_us())
        if expired:
            # The storage dates files by a clock of its own. Only what is old by both goes: a clock that is ahead must
            # not empty every topic.
            now_us = min(self._wall_us(), await self._store.now_us())
            needed = {s.id for s in segments if self._is_asked_about(s, now_us)}
            expired = [f for f in expired_files(listed, policy, now_us) if f.segment not in needed]
        if expired:
            await self._store.delete(expired)
            log.info("%s: deleted %s", topic.name, ", ".join(f.path for f in expired))
        pause_s = max(self._config.maintenance_interval_s, self._config.log_grace_s / 4)
        self._files_due[topic.name] = self._loop.time() + pause_s
        tables = {f.path for of_segment in files.values() for f in of_segment if f.kind is FileKind.TABLE}
        if tables or topic.name in self._published:
            await self._publish(topic, tables.difference(f.path for f in expired))
        await self._store.sweep(topic.name, topic.uid, kept_s=self._config.table_grace_s)
        # And so it is there, and showed what it has.
        if self._as_it_is_now(topic) is not None:
            await self._look_for_emptied(topic, files)

    async def _publish(self, topic: Topic, tables: Set[str]) -> None:
        """Say for other programs which tables count, if that may not be said yet."""
        now = self._as_it_is_now(topic)
        state = topic.uid, hash(frozenset(tables))
        if now is None or self._published.get(topic.name) == state:
            return
        try:
            if await self._converter.reconcile(now):
                self._published[topic.name] = state
        except SeaweedMQError as error:
            log.warning("%s: the list of its tables for other programs is brought in line later: %s", topic.name, error)

    def _is_asked_about(self, segment: Segment, now_us: int) -> bool:
        """Whether publishers may still come to learn from its log files how far they got: more of them than its record
        names were at work when it was sealed."""
        asked_until_us = segment.sealed_us + int(self._config.producer_idle_s * US_PER_S)
        return not segment.is_open and not segment.sequences_complete and now_us < asked_until_us

    async def _look_for_emptied(self, topic: Topic, files: Mapping[int, Sequence[SegmentFile]]) -> None:
        """Sealed segments without files are reported, once they were without them for a while."""
        known = self._view.segments_of(topic.name)
        now = self._loop.time()
        uid, before = self._emptied.get(topic.name, (topic.uid, {}))
        emptied = {
            n: before.get(n, now) if uid == topic.uid else now
            for n, s in known.items()
            if not s.is_open and not files.get(n)
        }
        self._emptied[topic.name] = topic.uid, emptied
        retention_s = self._config.segment_retention_s
        ready = [n for n, since in emptied.items() if since + min(CLOCK_DOUBT_S, retention_s) <= now]
        before_us = self._wall_us() - int(retention_s * US_PER_S)
        going = prunable(topic, known, ready, before_us, EMPTIED_PER_REPORT)
        if going:
            numbers = tuple(segment.id for segment in going)
            await self._report_emptied(ReportEmptied(topic=topic.name, topic_uid=topic.uid, segments=numbers))
