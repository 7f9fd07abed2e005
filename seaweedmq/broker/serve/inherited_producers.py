"""Kafka producer state inherited from predecessors.

The broker loads none of it when it opens a segment, since one failover may open hundreds. The first frame of a producer
that the segment's table does not know starts the search. It covers the records of the predecessors, which are in
memory, then their log files where a record had no room for every producer. Only log files have the last frames; they
are read when a producer repeats one. ``core.lineage.predecessor_chain`` has the rule that ends the search.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence

from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve.sealed_producers import OFFSETS_TIMEOUT_S, FoundProducers, SealedProducers
from seaweedmq.codec.frame import FrameHeader
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.lineage.predecessor_chain import READ_MAX, leaves_gap, predecessor_chain
from seaweedmq.errors import Corrupt, NotFound, StorageFailed, Unavailable
from seaweedmq.model.producer import is_kafka_producer
from seaweedmq.model.segment import ProducerState, Segment

log = logging.getLogger(__name__)

FILES_TIMEOUT_S = 3.0
"""Longest time in seconds that one frame waits for log files. Their reading continues for the next frame."""


class InheritedProducers:
    """Producer state that one open segment inherits."""

    def __init__(self, segment: OpenSegment, view: ClusterView, sealed: SealedProducers) -> None:
        self._segment = segment
        self._view = view
        self._sealed = sealed

    async def learn(self, header: FrameHeader) -> None:
        """Load the inherited state of a frame's producer into the segment's table, if it is a Kafka producer.

        Raises Unavailable if the log files with the state are not read yet, StorageFailed or Corrupt if they cannot be,
        and ResourceExhausted if the broker already remembers as many producers as it may.
        """
        if not is_kafka_producer(header.producer_id):
            return
        table = self._segment.log.producers
        if header.producer_id not in table:
            state = await self._state(header)
            if state is not None and header.producer_id not in table:
                self._segment.adopt_producer(state)
        if self._may_be_older(header):
            await self._load_frames(header)

    def _may_be_older(self, header: FrameHeader) -> bool:
        return self._segment.log.producers.may_be_older(
            header.producer_id, header.producer_epoch, header.first_sequence, header.record_count
        )

    def _predecessors(self) -> Iterator[Segment]:
        """Yield the sealed predecessors in the current metadata, the nearest first."""
        segment, view = self._segment.segment, self._view
        known = view.segments_of(segment.topic)
        return predecessor_chain(segment, known, view.sealed_for_s, self._segment.producer_idle_s)

    async def _state(self, header: FrameHeader) -> ProducerState | None:
        """Return the producer's state in the nearest predecessor that knows it; None if it may begin anywhere."""
        between: list[Segment] = []
        """The later segments that do not name the producer and whose opening this broker did not see: they may have
        dropped the producer when it was idle."""
        later: Segment | None = None
        files_read = 0
        for predecessor in self._predecessors():
            if later is not None and later.end_offset != later.start_offset and not self._view.saw_sealing(predecessor):
                between.append(later)
            state = self._recorded_state(predecessor, header.producer_id)
            if (
                state is None
                and not predecessor.sequences_complete
                and predecessor.end_offset != predecessor.start_offset
            ):
                if files_read == READ_MAX:
                    return None
                files_read += 1
                found = await self._recovered(predecessor, header.producer_id)
                state = found.states.get(header.producer_id)
                if state is None and not found.is_complete:
                    return None  # log files are retained as long as producers may repeat frames
            if state is not None:
                if between and leaves_gap(state, header.producer_epoch, header.first_sequence):
                    return await self._state_behind_a_gap(header.producer_id, between, state)
                return state
            later = predecessor
        return None

    async def _state_behind_a_gap(
        self, producer_id: int, between: Sequence[Segment], state: ProducerState
    ) -> ProducerState | None:
        """Return the state of a producer whose frame does not continue ``state``, from the later segments' log files.

        None if those segments may have held more of the producer than the remaining files show.
        """
        if len(between) > READ_MAX:
            return None
        for predecessor in between:
            found = await self._recovered(predecessor, producer_id)
            if producer_id in found.states:
                return found.states[producer_id]
            if found.begins_at > predecessor.start_offset:
                return None
        return state

    def _recorded_state(self, predecessor: Segment, producer_id: int) -> ProducerState | None:
        recorded = self._sealed.recorded(self._segment.topic, predecessor).get(producer_id)
        if recorded is None:
            return None
        return ProducerState(
            producer_id=producer_id, producer_epoch=recorded.producer_epoch, next_sequence=recorded.next_sequence
        )

    async def _recovered(self, predecessor: Segment, producer_id: int) -> FoundProducers:
        try:
            async with asyncio.timeout(FILES_TIMEOUT_S):
                return await self._sealed.recovered(self._segment.topic, predecessor)
        except TimeoutError:
            raise Unavailable(
                f"the state of producer {producer_id} in {predecessor} is still being read from log files: retry"
            ) from None

    async def _load_frames(self, header: FrameHeader) -> None:
        """Load the offsets of the producer's last frames, until those of this header are among them.

        Failures are only logged: the frame is known to be stored, so its producer can continue without the offsets.
        """
        table, topic, producer_id = self._segment.log.producers, self._segment.topic, header.producer_id
        try:
            async with asyncio.timeout(OFFSETS_TIMEOUT_S):
                for predecessor in self._predecessors():
                    if producer_id not in self._sealed.recorded(topic, predecessor) and predecessor.sequences_complete:
                        continue
                    found = await self._sealed.recovered(topic, predecessor)
                    state = found.states.get(producer_id)
                    if state is not None:
                        table.put_before(producer_id, state.producer_epoch, state.recent)
                    if not self._may_be_older(header):
                        return
        except (Corrupt, NotFound, StorageFailed, TimeoutError) as error:
            log.warning(
                "offset lookup failed: %s, producer %d gets no offsets of a repeated frame: %s",
                *(self._segment.segment, producer_id, error or "timed out"),
            )
