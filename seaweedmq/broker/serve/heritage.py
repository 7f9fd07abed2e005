"""What Kafka's producers had stored in the segments that an open one succeeds: there they go on counting.

Nothing of it is looked for when a segment is opened, for that may be one of hundreds which a dead broker had. Only a
frame of a producer that is not known here asks: first the records of the earlier segments, which are in memory, then
their log files where a record had no room for everybody. Which frames were the last is in the log files alone, and
asked for when one of them is sent again.
"""

import asyncio
import logging
from collections.abc import Iterator

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.sealed_producers import OFFSETS_TIMEOUT_S, SealedProducers
from seaweedmq.codec.frame import FrameHeader
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.elders import elders
from seaweedmq.errors import Corrupt, NotFound, StorageFailed, Unavailable
from seaweedmq.model.producer import is_kafka_producer
from seaweedmq.model.segment import ProducerState, Segment

log = logging.getLogger(__name__)

FILES_TIMEOUT_S = 3.0
"""How long one frame waits for log files that tell whether it was stored before. They are read on for the next one."""


class Heritage:
    """Of one open segment."""

    def __init__(self, segment: OpenSegment, view: ClusterView, sealed: SealedProducers) -> None:
        self._segment = segment
        self._view = view
        self._sealed = sealed

    async def learn(self, header: FrameHeader) -> None:
        """Have the segment's table know what earlier segments tell of a frame, if it is one of Kafka's producers.

        Raises:
            Unavailable: the log files that know are not read yet.
            StorageFailed, Corrupt: they can not be read.
            ResourceExhausted: the broker remembers as many producers as it may.
        """
        if not is_kafka_producer(header.producer_id):
            return
        table = self._segment.log.producers
        if header.producer_id not in table:
            state = await self._state(header.producer_id)
            if state is not None and header.producer_id not in table:
                self._segment.adopt_producer(state)
        if self._may_be_older(header):
            await self._learn_frames(header)

    def _may_be_older(self, header: FrameHeader) -> bool:
        return self._segment.log.producers.may_be_older(
            header.producer_id, header.producer_epoch, header.first_sequence, header.record_count
        )

    def _elders(self) -> Iterator[Segment]:
        """As of the metadata now: none once nobody who was not here since can repeat anything any more."""
        segment = self._segment.segment
        return elders(segment, self._view.segments_of(segment.topic), self._segment.asked_back_s)

    async def _state(self, producer_id: int) -> ProducerState | None:
        """Of the last earlier segment in which it stored something; None if it can not repeat anything of there."""
        topic = self._segment.topic
        for elder in self._elders():
            recorded = self._sealed.recorded(topic, elder).get(producer_id)
            if recorded is not None:
                return ProducerState(
                    producer_id=producer_id,
                    producer_epoch=recorded.producer_epoch,
                    next_sequence=recorded.next_sequence,
                )
            if elder.sequences_complete:
                continue
            try:
                async with asyncio.timeout(FILES_TIMEOUT_S):
                    found = await self._sealed.recovered(topic, elder)
            except TimeoutError:
                raise Unavailable(
                    f"what producer {producer_id} had stored in {elder} is still being read from its log files: retry"
                ) from None
            # Who is missing there, too, has stored nothing, or longer ago than log files stay.
            if producer_id in found.states:
                return found.states[producer_id]
        return None

    async def _learn_frames(self, header: FrameHeader) -> None:
        """Where the last frames of the producer are, until the one of this header is among them. It is stored, so that
        its producer can go on even if nobody can say where."""
        table, topic, who = self._segment.log.producers, self._segment.topic, header.producer_id
        try:
            async with asyncio.timeout(OFFSETS_TIMEOUT_S):
                for elder in self._elders():
                    if who not in self._sealed.recorded(topic, elder) and elder.sequences_complete:
                        continue
                    found = await self._sealed.recovered(topic, elder)
                    state = found.states.get(who)
                    if state is not None:
                        table.put_before(who, state.producer_epoch, state.recent)
                    if not self._may_be_older(header):
                        return
        except (Corrupt, NotFound, StorageFailed, TimeoutError) as error:
            log.warning(
                "%s: producer %d is not told where a repeated frame was stored: %s",
                *(self._segment.segment, who, error or "not in time"),
            )
