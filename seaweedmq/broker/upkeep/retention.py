"""Retention of the files of topics: delete expired ones, record that, publish the live tables, report empty segments.

One broker maintains all files of a topic, because retention by size needs their total.
"""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Set
from functools import partial

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.upkeep.deleted_records import DeletedRecords
from seaweedmq.broker.upkeep.maintained_segments import is_maintainer
from seaweedmq.broker.upkeep.producer_documents import ProducerDocuments
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.clock_doubt import WallWatch, doubt_s
from seaweedmq.core.files.holes import removed_by
from seaweedmq.core.files.retention import Listed, confirmed_files, retention_policy
from seaweedmq.core.files.seen_tables import SeenTables
from seaweedmq.core.lineage.pruning import is_older, prunable
from seaweedmq.errors import SeaweedMQError, StorageFailed
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.calls import ReportEmptied
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore, TableConverter
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

EMPTIED_PER_REPORT = 1_000
"""Most segments without files in one report to the leader."""


class Retention:
    """Retention of the topics that this broker maintains."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        broker_id: str,
        view: ClusterView,
        store: SegmentStore,
        converter: TableConverter,
        clock: ConfirmedClock,
        report_emptied: Callable[[ReportEmptied], Awaitable[None]],
    ) -> None:
        self._config = config
        self._pause_s = max(config.maintenance_interval_s, config.log_grace_s / 4)
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._deleted_records = DeletedRecords(config=config, converter=converter)
        self._clock = clock
        self._report_emptied = report_emptied
        self._storage_clock = WallWatch()
        """The clock that dates files. It may step while this broker's clock is wrong as well."""
        self._storage_clock_due = 0.0
        """The time on the event loop's clock, in seconds, at which the storage clock is read even if no file is due."""
        self._emptied: dict[TopicName, tuple[int, dict[int, float]]] = {}
        """Topic -> its uid, and its sealed segments without files, with the event loop time, in seconds, since when."""
        self._files_due: dict[TopicName, float] = {}
        """Topic -> event loop time, in seconds, of the next check of its files. An absent topic is due.

        It is not wall clock time: a clock that is set back would stop retention until it catches up.
        """
        self._seen: dict[TopicName, tuple[int, SeenTables]] = {}
        """Topic -> its uid, and the tables that its listings have shown."""
        self._published: dict[TopicName, tuple[int, int]] = {}
        """Maintained topic whose live tables are published -> its uid, and a hash of the names of its tables.

        A changed hash causes another publication: the process that added or removed tables, on any broker, may have
        been killed before it published.
        """
        self._unrecorded: dict[TopicName, tuple[int, dict[int, int]]] = {}
        """Topic -> its uid, and the removals that the storage has not recorded, as segment -> offset.

        Full storage rejects new files. Until there is room, the topic's retention setting explains missing records.
        """
        self._failures_log = OnceLogger(log)
        self._producers = ProducerDocuments(store, self._failures_log)
        self._loop = asyncio.get_running_loop()

    async def round(self, converted: Set[TopicName]) -> None:
        """Maintain the files of every topic that is due; ``converted`` topics, which have other files now, are."""
        for name in converted:
            self._files_due.pop(name, None)
        for known in (self._emptied, self._files_due, self._seen, self._published, self._unrecorded):
            for name in known.keys() - self._view.topics.keys():
                del known[name]
        self._producers.forget(self._producers.topics - self._view.topics.keys())
        self._deleted_records.keep_only(self._view.topics)
        for name in list(self._view.topics):
            what = f"upkeep of {name}"
            try:
                await self._maintain(name)
                self._failures_log.over(what)
            except SeaweedMQError as error:
                self._failures_log.add(what, error)

    async def watch_storage_clock(self) -> None:
        """Read the storage clock, if that is due."""
        if self._storage_clock_due > self._loop.time():
            return
        try:
            await self._read_storage_clock()
        except SeaweedMQError as error:
            self._failures_log.add("read of the storage clock", error)

    async def _read_storage_clock(self) -> None:
        now_us = await self._store.now_us()
        self._storage_clock.note(now_us, self._clock.read())
        self._storage_clock_due = self._loop.time() + self._pause_s

    async def _maintain(self, name: TopicName) -> None:
        """Maintain a topic's files if this broker is its maintainer."""
        topic = self._view.topics.get(name)
        if topic is None:
            return
        segments = self._view.segments_of(name)
        first = next(iter(segments.values()), None)
        is_mine = first is not None and is_maintainer(first, self._broker_id, self._view)
        if not is_mine:
            self._seen.pop(name, None)
            self._deleted_records.forget(name)
            self._published.pop(name, None)  # another broker now tracks changes of the tables
            await self._record_removed(topic)
        elif self._files_due.get(name, 0) <= self._loop.time():
            await self._expire(topic, list(segments.values()))

    async def _files_of(self, topic: Topic) -> defaultdict[int, list[SegmentFile]]:
        """Return a topic's files by segment id."""
        files: defaultdict[int, list[SegmentFile]] = defaultdict(list)
        for file in await self._store.list_topic_files(topic.name, uid=topic.uid):
            files[file.segment].append(file)
        return files

    def _current(self, topic: Topic) -> Topic | None:
        """Return the current version of a topic; None if it was deleted, even if it was recreated."""
        now = self._view.topics.get(topic.name)
        return now if now is not None and now.uid == topic.uid else None

    async def _expire(self, topic: Topic, segments: Sequence[Segment]) -> None:
        files = await self._files_of(topic)
        if self._current(topic) is None:
            return  # the files may belong to a recreated topic
        seen, steady_s = self._seen_tables(topic), self._clock.read()
        listed = [
            Listed(s.end_offset, files[s.id], topic.low_watermark(s.slots), seen.absent(s.id, steady_s))
            for s in segments
        ]
        seen.note({s.id: _tables_end(s, files[s.id]) for s in segments}, steady_s)
        policy = retention_policy(topic, self._config)
        watched_s = seen.watched_s(steady_s)
        expired = confirmed_files(listed, policy, partial(self._confirmed_us, watched_s))
        if expired:
            # Storage dates files by its own clock. Only files that are old by both clocks are deleted: one clock that
            # is ahead must not empty every topic.
            await self._read_storage_clock()
            needed = {s.id for s in segments if self._may_be_queried(s)}
            expired = confirmed_files(listed, policy, partial(self._confirmed_by_both_us, watched_s))
            expired = [f for f in expired if f.segment not in needed]
        if expired:
            self._note_removed(topic, removed_by([f for of_segment in files.values() for f in of_segment], expired))
            await self._record_removed(topic)
        losing_logs = {f.segment for f in expired if f.kind is FileKind.LOG}
        await self._producers.write(topic, [s for s in segments if s.id in losing_logs])
        if expired:
            await self._store.delete(expired)
            log.info("files deleted: %s, %s", topic.name, ", ".join(f.path for f in expired))
        await self._record_removed(topic)  # again, in case storage was full: the deletion made room
        self._files_due[topic.name] = self._loop.time() + self._pause_s
        tables = {f.path for of_segment in files.values() for f in of_segment if f.kind is FileKind.TABLE}
        if tables or topic.name in self._published:
            await self._publish(topic, tables.difference(f.path for f in expired))
        kept_s = self._config.table_grace_s
        await self._store.sweep(topic.name, topic.uid, kept_s=kept_s, now_us=self._clock.confirmed_us(kept_s))
        # The sweep succeeded, so the storage is mounted and the listing was complete.
        if self._current(topic) is not None:
            await self._report_emptied_segments(topic, files)
        await self._remove_deleted_records(topic, listed, {f.path for f in expired})

    async def _remove_deleted_records(self, topic: Topic, listed: Iterable[Listed], expired: Set[str]) -> None:
        """Rewrite tables that are partly deleted."""
        now = self._current(topic)
        if now is None:
            return
        left = [listing._replace(files=[f for f in listing.files if f.path not in expired]) for listing in listed]
        if await self._deleted_records.rewrite(now, left):
            self._files_due.pop(topic.name, None)

    def _confirmed_us(self, watched_s: float, period_s: float) -> int:
        """Return a lower bound of the current time, in microseconds, for files that are retained for ``period_s``.

        It is 0 for a topic that was watched for less than the doubt: a clock that was behind may have dated its files.
        """
        return self._clock.confirmed_us(period_s) if watched_s >= doubt_s(period_s) else 0

    def _confirmed_by_both_us(self, watched_s: float, period_s: float) -> int:
        """Return the same bound by both the clocks of this broker and of the storage."""
        of_storage_us = self._storage_clock.confirmed_us(self._clock.read(), doubt_s(period_s))
        return min(self._confirmed_us(watched_s, period_s), of_storage_us)

    def _note_removed(self, topic: Topic, removed: Mapping[int, int]) -> None:
        """Note the offsets up to which a deletion removes records, until the storage has recorded them."""
        uid, noted = self._unrecorded.get(topic.name, (topic.uid, {}))
        merged = noted if uid == topic.uid else {}
        merged |= {segment: max(offset, merged.get(segment, 0)) for segment, offset in removed.items()}
        self._unrecorded[topic.name] = topic.uid, merged

    async def _record_removed(self, topic: Topic) -> None:
        """Record the noted removals in the storage, so that no reader reports removed records as lost."""
        uid, noted = self._unrecorded.get(topic.name, (0, {}))
        if uid != topic.uid or not noted:
            return
        what = f"record of removed records of {topic.name}"
        try:
            await self._store.record_removed(topic.name, topic.uid, noted)
        except StorageFailed as error:
            # Full storage must not stop retention. While retention is on, its setting explains the removed records.
            self._failures_log.add(what, error)
        else:
            del self._unrecorded[topic.name]
            self._failures_log.over(what)

    async def _publish(self, topic: Topic, tables: Set[str]) -> None:
        """Publish the list of live tables for other programs, unless the present one is published."""
        now = self._current(topic)
        state = topic.uid, hash(frozenset(tables))
        if now is None or self._published.get(topic.name) == state:
            return
        what = f"publication of the tables of {topic.name}"
        try:
            if await self._converter.reconcile(now):
                self._published[topic.name] = state
            self._failures_log.over(what)
        except SeaweedMQError as error:
            self._failures_log.add(what, error)

    def _seen_tables(self, topic: Topic) -> SeenTables:
        uid, seen = self._seen.get(topic.name, (topic.uid, SeenTables()))
        if uid != topic.uid:
            seen = SeenTables()
        self._seen[topic.name] = topic.uid, seen
        return seen

    def _may_be_queried(self, segment: Segment) -> bool:
        """Whether publishers may still need the segment's log files to learn their progress.

        They may if more publishers were active at its sealing than its record names. The steady clock decides, because
        timestamps of a lineage come from several clocks.
        """
        if segment.is_open or segment.sequences_complete or segment.start_offset == segment.end_offset:
            return False
        return self._view.sealed_for_s(segment) < self._config.producer_idle_s

    async def _report_emptied_segments(self, topic: Topic, files: Mapping[int, Sequence[SegmentFile]]) -> None:
        """Report sealed segments that have had no files for the segment retention time, so that they are pruned."""
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
        ready = [n for n, since in emptied.items() if since + doubt_s(retention_s) <= now]
        is_old = is_older(known, self._clock.before_us(retention_s), self._view.sealed_for_s, retention_s)
        going = prunable(topic, known, ready, is_old, EMPTIED_PER_REPORT)
        if going:
            numbers = tuple(segment.id for segment in going)
            await self._report_emptied(ReportEmptied(topic=topic.name, topic_uid=topic.uid, segments=numbers))


def _tables_end(segment: Segment, files: Iterable[SegmentFile]) -> int:
    return max((f.end_offset or 0 for f in files if f.kind is FileKind.TABLE), default=segment.start_offset)
