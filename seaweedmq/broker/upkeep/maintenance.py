"""Files behind the stream: seal old logs, turn them into tables, delete what retention and the grace period let go."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from xxhash import xxh3_64_intdigest

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.files.retention import RetentionPolicy, expired_files, is_unconverted
from seaweedmq.core.lineage.allocation import maintainer
from seaweedmq.core.lineage.pruning import CLOCK_DOUBT_S, prunable
from seaweedmq.errors import Corrupt, SeaweedMQError
from seaweedmq.model.calls import ReportEmptied
from seaweedmq.model.config import US_PER_S, BrokerConfig
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore, TableConverter

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
        segments: Callable[[], Iterable[OpenSegment]],
        wall_us: Callable[[], int],
        report_emptied: Callable[[ReportEmptied], Awaitable[None]],
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._segments = segments
        self._wall_us = wall_us
        self._report_emptied = report_emptied
        self._shares: dict[TopicName, _Share] = {}
        self._files_due: dict[TopicName, float] = {}
        """Event loop time, seconds, at which a topic's files are worth a look again. Topics that are not in it are due.
        Not the wall clock: one that is set back would stop retention until it is there again."""
        self._loop = asyncio.get_running_loop()

    async def run(self) -> None:
        """Look things over until cancelled, once an interval."""
        while True:
            await asyncio.sleep(self._config.maintenance_interval_s)
            for segment in list(self._segments()):
                segment.files.retire_if_older(self._config.log_roll_age_s)
            for segment in list(self._segments()):
                await self._convert_own(segment)
            for known in (self._shares, self._files_due):
                for name in known.keys() - self._view.topics.keys():
                    del known[name]
            for name in list(self._view.topics):
                try:
                    await self._look_after(name)
                except SeaweedMQError as error:
                    log.warning("%s: files not looked after now, tried again soon: %s", name, error)

    async def _convert_own(self, segment: OpenSegment) -> None:
        if segment.log.committed < segment.log.flushed:
            return  # the lease is in doubt: what is not committed may never be part of the segment
        logs = list(segment.files.sealed)
        # What a log holds beyond, if its fsync failed, may still become nobody's.
        if logs and await self._convert(segment.topic, logs, segment.log.flushed):
            del segment.files.sealed[: len(logs)]
            self._files_due.pop(segment.topic.name, None)

    async def _look_after(self, name: TopicName) -> None:
        topic = self._view.topics.get(name)
        if topic is None:
            return
        segments = self._view.segments_of(name)
        mine = self._share(topic).take(self._view.topic_revision(name), self._view, self._is_mine)
        if mine:
            listed = await self._files_of(name)
            for segment in mine:
                await self._convert_sealed(topic, segment, listed[segment.id])
        # The whole topic's files are one broker's business, since retention by size counts them together.
        first = next(iter(segments.values()), None)
        if first and self._is_mine(first) and self._files_due.get(name, 0) <= self._loop.time():
            await self._expire(topic, list(segments.values()))

    def _share(self, topic: Topic) -> "_Share":
        share = self._shares.get(topic.name)
        if share is None or share.uid != topic.uid:
            share = self._shares[topic.name] = _Share(topic.name, topic.uid)
        return share

    async def _files_of(self, name: TopicName) -> defaultdict[int, list[SegmentFile]]:
        """By segment. Listing each segment apart would go through the folder of all their tables every time."""
        files: defaultdict[int, list[SegmentFile]] = defaultdict(list)
        for file in await self._store.list_topic_files(name):
            files[file.segment].append(file)
        return files

    async def _convert_sealed(self, topic: Topic, segment: Segment, files: Sequence[SegmentFile]) -> None:
        logs = [f for f in files if f.kind is FileKind.LOG]
        if any(is_unconverted(log, files, segment.end_offset) for log in logs):
            if not await self._convert(topic, logs, segment.end_offset):
                return
            self._files_due.pop(topic.name, None)
        self._share(topic).settle(segment)

    async def _convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> bool:
        now = self._as_it_is_now(topic)
        if now is None:
            return False
        try:
            tables = await self._converter.convert(now, logs, end_offset)
        except Corrupt as error:
            log.error("not converted, the log files stay as they are: %s", error)
            return False
        except SeaweedMQError as error:
            log.warning("not converted now, tried again in %.0f s: %s", self._config.maintenance_interval_s, error)
            return False
        log.info("%s: %d log files became %s", topic.name, len(logs), ", ".join(t.path for t in tables) or "nothing")
        return True

    def _as_it_is_now(self, topic: Topic) -> Topic | None:
        """None if it was deleted, even if there is another one of its name."""
        now = self._view.topics.get(topic.name)
        return now if now is not None and now.uid == topic.uid else None

    async def _expire(self, topic: Topic, segments: Sequence[Segment]) -> None:
        files = await self._files_of(topic.name)
        if self._as_it_is_now(topic) is None:
            return  # these may be the files of another one
        listed = [(s.end_offset, files[s.id]) for s in segments]
        policy = RetentionPolicy(
            log_grace_us=int(self._config.log_grace_s * US_PER_S),
            retention_us=None if topic.retention_s is None else int(topic.retention_s * US_PER_S),
            retention_bytes=topic.retention_bytes,
        )
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
        await self._store.sweep(topic.name, topic.uid)  # and so it is there, and showed what it has
        if self._as_it_is_now(topic) is not None:
            await self._look_for_emptied(topic, files)

    def _is_asked_about(self, segment: Segment, now_us: int) -> bool:
        """Whether publishers may still come to learn from its log files how far they got: more of them than its record
        names were at work when it was sealed."""
        asked_until_us = segment.sealed_us + int(self._config.producer_idle_s * US_PER_S)
        return not segment.is_open and not segment.sequences_complete and now_us < asked_until_us

    async def _look_for_emptied(self, topic: Topic, files: Mapping[int, Sequence[SegmentFile]]) -> None:
        """Sealed segments without files are reported, once they were without them for a while."""
        known = self._view.segments_of(topic.name)
        now = self._loop.time()
        share = self._share(topic)
        before = share.emptied
        share.emptied = {n: before.get(n, now) for n, s in known.items() if not s.is_open and not files.get(n)}
        retention_s = self._config.segment_retention_s
        ready = [n for n, since in share.emptied.items() if since + min(CLOCK_DOUBT_S, retention_s) <= now]
        before_us = self._wall_us() - int(retention_s * US_PER_S)
        going = prunable(topic, known, ready, before_us, EMPTIED_PER_REPORT)
        if going:
            numbers = tuple(segment.id for segment in going)
            await self._report_emptied(ReportEmptied(topic=topic.name, topic_uid=topic.uid, segments=numbers))

    def _is_mine(self, segment: Segment) -> bool:
        live = list(self._view.brokers)
        return bool(live) and self._broker_id == maintainer(
            segment.primary, live, lambda broker: int(xxh3_64_intdigest(f"{broker}/{segment}".encode()))
        )


class _Share:
    """This broker's share of the sealed segments of one topic. Looking again costs nothing while nothing changed."""

    def __init__(self, name: TopicName, uid: int) -> None:
        self.name = name
        self.uid = uid
        self._settled: set[int] = set()
        """Segments whose records are all in tables."""
        self._others: set[int] = set()
        """Other brokers' share."""
        self._due: dict[int, Segment] = {}
        self._seen: tuple[int, tuple[str, ...]] = 0, ()
        """Revision of the topic and brokers that live, as of the last look."""
        self.emptied: dict[int, float] = {}
        """Sealed segments without any file -> loop time since when; kept by who looks after all files of the topic."""

    def take(self, revision: int, view: ClusterView, is_mine: Callable[[Segment], bool]) -> list[Segment]:
        """Segments to convert that are not settled yet."""
        seen, live = self._seen, tuple(view.brokers)
        self._seen = revision, live
        if seen[1] != live:
            self._others.clear()
        if seen != self._seen:
            known = view.segments_of(self.name)
            self._settled &= known.keys()
            self._others &= known.keys()
            self._due = {}
            for number, segment in known.items():
                if segment.is_open or number in self._settled or number in self._others:
                    continue
                if is_mine(segment):
                    self._due[number] = segment
                else:
                    self._others.add(number)
        return list(self._due.values())

    def settle(self, segment: Segment) -> None:
        """All its records are in tables."""
        self._settled.add(segment.id)
        self._due.pop(segment.id, None)
