"""Files behind the stream: seal old logs, turn them into tables, delete what retention and the grace period let go."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from xxhash import xxh3_64_intdigest

from seaweedmq.broker.segment import OpenSegment
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.allocation import maintainer
from seaweedmq.core.retention import RetentionPolicy, expired_files, is_unconverted
from seaweedmq.errors import Corrupt, SeaweedMQError
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import FileKind, SegmentFile, SegmentStore, TableConverter

log = logging.getLogger(__name__)

US_PER_S = 1_000_000


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
    ) -> None:
        self._config = config
        self._broker_id = broker_id
        self._view = view
        self._store = store
        self._converter = converter
        self._segments = segments
        self._wall_us = wall_us
        self._converted: set[tuple[int, int]] = set()
        """(topic uid, segment) of sealed segments whose records are all in tables."""
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
        segments = list(self._view.segments.get(name, {}).values())
        sealed = [s for s in segments if not s.is_open and (topic.uid, s.id) not in self._converted]
        mine = [s for s in sealed if self._is_mine(s)]
        if mine:
            listed = await self._files_of(name)
            for segment in mine:
                await self._convert_sealed(topic, segment, listed[segment.id])
        # The whole topic's files are one broker's business, since retention by size counts them together.
        if segments and self._is_mine(segments[0]) and self._files_due.get(name, 0) <= self._loop.time():
            await self._expire(topic, segments)

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
        self._converted.add((topic.uid, segment.id))

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
            expired = expired_files(listed, policy, now_us)
        if expired:
            await self._store.delete(expired)
            log.info("%s: deleted %s", topic.name, ", ".join(f.path for f in expired))
        pause_s = max(self._config.maintenance_interval_s, self._config.log_grace_s / 4)
        self._files_due[topic.name] = self._loop.time() + pause_s

    def _is_mine(self, segment: Segment) -> bool:
        live = list(self._view.brokers)
        return bool(live) and self._broker_id == maintainer(
            segment.primary, live, lambda broker: int(xxh3_64_intdigest(f"{broker}/{segment}".encode()))
        )
