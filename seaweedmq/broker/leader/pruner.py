"""Pruner of the metadata: removes old producer sequences and segments without files from etcd."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.leader.documents import Documents
from seaweedmq.broker.leader.metadata import Metadata, segment_put
from seaweedmq.codec.state import keys
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION
from seaweedmq.core.clock_doubt import DueSince, doubt_s
from seaweedmq.core.lineage.pruning import is_older, prunable, trimmable
from seaweedmq.core.lineage.topology import MetadataChange
from seaweedmq.errors import NotFound, SeaweedMQError
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.messages.calls import ReportEmptied
from seaweedmq.model.segment import Segment, SegmentId
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Delete
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

TRANSACTIONS_PER_ROUND = 10


class Pruner:
    """The leader's pruner. It works in bounded steps; every write compares the keys it changes."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        documents: Documents,
        config: BrokerConfig,
        clock: ConfirmedClock,
        forget_offsets: Callable[[TopicName], Awaitable[None]],
    ) -> None:
        """Create the pruner; ``forget_offsets`` removes what a topic's groups committed in pruned segments."""
        self._metadata = metadata
        self._documents = documents
        self._config = config
        self._clock = clock
        self._forget_offsets = forget_offsets
        self._trim_due: DueSince[SegmentId] = DueSince()
        """Segments whose sequences are due. Other leaders stamped them, perhaps by slow clocks."""
        self._offsets_due: set[TopicName] = set()
        """Topics whose groups may still have offsets of pruned segments."""
        self._failures_log = OnceLogger(log)

    async def run(self) -> None:
        """Prune once an interval, until cancelled."""
        topics = self._metadata.view.topics
        self._offsets_due = {name for name, topic in topics.items() if topic.pruned}  # pruned by an earlier leader
        try:
            while True:
                await asyncio.sleep(self._config.maintenance_interval_s)
                for work in (self._trim, self._forget):
                    try:
                        await work()
                    except SeaweedMQError as error:
                        self._failures_log.add("metadata pruning", error)
        finally:
            self._trim_due.clear()

    async def prune(self, emptied: ReportEmptied) -> None:
        """Prune segments without files, as far as retention allows.

        Raises NotFound if the topic was deleted, and as ``Metadata.write``; the primary repeats its report.
        """
        for _ in range(TRANSACTIONS_PER_ROUND):
            async for attempt in self._metadata.on_conflict():
                with attempt:
                    if not await self._prune_some(emptied):
                        return

    async def _prune_some(self, emptied: ReportEmptied) -> bool:
        """Prune the segments of one transaction; return False if none is due."""
        name, metadata = emptied.topic, self._metadata
        topic = metadata.topic(name)
        if topic.uid != emptied.topic_uid:
            raise NotFound(f"{name} was deleted and recreated: refresh the metadata")
        is_old = self._is_older(name, self._config.segment_retention_s)
        going = prunable(topic, self._segments(name), emptied.segments, is_old, CHANGES_PER_TRANSACTION)
        if not going:
            return False
        revision = await metadata.write(
            MetadataChange(replace(topic, pruned=topic.pruned.including(s.id for s in going)), ()),
            [metadata.unchanged(segment) for segment in going],
            [Delete(keys.segment_key(name, segment.id)) for segment in going],
        )
        self._offsets_due.add(name)
        await metadata.view.wait_revision(revision)
        self._documents.expect([name])
        log.info("segments pruned: %s, %d from %s", name, len(going), going[0])
        return True

    async def _trim(self) -> None:
        """Remove producer sequences once their retention is over."""
        retention_s = self._config.producer_retention_s
        due: dict[SegmentId, Segment] = {}
        for name in list(self._metadata.view.topics):
            due |= {s.key: s for s in trimmable(self._segments(name), self._is_older(name, retention_s))}
            await asyncio.sleep(0)
        ready = [due[key] for key in self._trim_due.confirmed(due, self._clock.read(), doubt_s(retention_s))]
        ready = ready[: TRANSACTIONS_PER_ROUND * CHANGES_PER_TRANSACTION]
        for at in range(0, len(ready), CHANGES_PER_TRANSACTION):
            chosen = ready[at : at + CHANGES_PER_TRANSACTION]
            await self._metadata.transact(  # a concurrent change is left to the next round
                [self._metadata.unchanged(segment) for segment in chosen],
                [segment_put(replace(segment, sequences=(), sequences_complete=False)) for segment in chosen],
            )

    async def _forget(self) -> None:
        """Remove the offsets that groups committed in pruned segments."""
        for name in sorted(self._offsets_due):
            self._offsets_due.discard(name)  # first: more segments may be pruned meanwhile
            try:
                await self._forget_offsets(name)
            except SeaweedMQError as error:
                self._offsets_due.add(name)
                self._failures_log.add(f"removal of group offsets in pruned segments of {name}", error)

    def _is_older(self, name: TopicName, period_s: float) -> Callable[[Segment], bool]:
        before_us = self._clock.before_us(period_s)
        return is_older(self._segments(name), before_us, self._metadata.view.sealed_for_s, period_s)

    def _segments(self, name: TopicName) -> Mapping[int, Segment]:
        return self._metadata.view.segments_of(name)
