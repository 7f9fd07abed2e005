"""How far a producer got in a sealed segment: as its record says, or its log files.

A producer that neither names has stored nothing that it may repeat, provided that they name everybody who may have.
Where nobody can tell, that is the answer: a guess would store records twice, or lose them.
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeAlias

from seaweedmq.errors import Corrupt, Fenced, NotFound, OutOfRange, SeaweedMQError, StorageFailed, fresh
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerSequence, ProducerState, ReplicaKey, Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import SegmentStore
from seaweedmq.storage.read.recovery import Recovered, recover_segment

log = logging.getLogger(__name__)

RECOVERED_WEIGHT_MAX = 64_000
"""Producers and frames of sealed segments that are kept in memory: some 150 bytes each."""
RECORDED_WEIGHT_MAX = 64_000
"""Sealed segments, and producers that their records name, that are kept by id: some 100 bytes each."""
OFFSETS_TIMEOUT_S = 3.0
"""How long the files may take where only the offsets of the last frames depend on them."""

Sequences: TypeAlias = tuple[ProducerSequence, ...]


class SealedProducers:
    """Answers for sealed segments: publishers whose segment it was, and successors in which others go on."""

    def __init__(self, store: SegmentStore) -> None:
        self._recorded = _Recorded()
        self._recovered = _Recovered(store)

    async def progress(
        self, topic: Topic, segment: Segment, producer_id: int, producer_epoch: int, first_sequence: int
    ) -> tuple[int, tuple[FrameAck, ...]]:
        """How far the producer, which repeats nothing below ``first_sequence``, got; and its last frames, as far as
        they are known.

        Raises:
            Fenced: a newer epoch of the producer was here.
            OutOfRange: neither the record nor the files, of which some are gone, know.
            SeaweedMQError: the files would know, and can not be read.
        """
        recorded = self.recorded(topic, segment).get(producer_id)
        if recorded is not None:
            _check_epoch(segment, recorded, producer_epoch)
        if recorded is not None and recorded.producer_epoch == producer_epoch:
            if recorded.next_sequence <= first_sequence:
                return recorded.next_sequence, ()  # no acknowledgement is missing
            return await self._with_frames(topic, segment, recorded)
        if segment.sequences_complete:
            return first_sequence, ()
        found = await self.recovered(topic, segment)
        state = found.states.get(producer_id)
        if state is not None:
            _check_epoch(segment, state.sequence, producer_epoch)
            if state.producer_epoch == producer_epoch:
                return state.next_sequence, state.recent
        if not found.is_complete:
            raise OutOfRange(
                f"{segment} is sealed, its record is too short to name producer {producer_id}, and its last log file "
                f"is gone: what the producer sent from sequence {first_sequence} on may be kept; look for it in the "
                "topic before you send it again. Log files of such segments stay for producer_idle_s: delete none "
                "before, and raise it if publishers come back later than that"
            )
        return first_sequence, ()

    def recorded(self, topic: Topic, segment: Segment) -> Mapping[int, ProducerSequence]:
        """Producers by id, as the record of the segment names them."""
        return self._recorded.of(topic, segment)

    def is_new_epoch(self, topic: Topic, segment: Segment, producer_id: int, producer_epoch: int) -> bool:
        """Whether the record names the producer with an earlier epoch: of this one the segment holds nothing."""
        recorded = self.recorded(topic, segment).get(producer_id)
        return recorded is not None and recorded.producer_epoch < producer_epoch

    async def recovered(self, topic: Topic, segment: Segment) -> "FoundProducers":
        """Producers as the log files have them, read once for all who ask. Raises as ``recover_segment``."""
        return await self._recovered.of(topic, segment)

    async def _with_frames(
        self, topic: Topic, segment: Segment, recorded: ProducerSequence
    ) -> tuple[int, tuple[FrameAck, ...]]:
        try:
            async with asyncio.timeout(OFFSETS_TIMEOUT_S):
                found = await self.recovered(topic, segment)
        except (Corrupt, NotFound, StorageFailed, TimeoutError) as error:
            log.warning("%s: a publisher gets no offsets of its last frames: %s", segment, error or "not in time")
            return recorded.next_sequence, ()
        state = found.states.get(recorded.producer_id)
        if state is None or state.producer_epoch != recorded.producer_epoch:
            return recorded.next_sequence, ()
        return state.next_sequence, state.recent


def _check_epoch(segment: Segment, known: ProducerSequence, producer_epoch: int) -> None:
    if known.producer_epoch > producer_epoch:
        raise Fenced(
            f"producer {known.producer_id} epoch {producer_epoch} was fenced by epoch {known.producer_epoch} in "
            f"{segment}: another instance took its identity over; stop this one"
        )


class _Recorded:
    """Producers by id as the records of sealed segments have them: all publishers of a segment come back at once."""

    def __init__(self) -> None:
        self._known: OrderedDict[ReplicaKey, tuple[Sequences, dict[int, ProducerSequence]]] = OrderedDict()
        """The longest unused first."""
        self._weight = 0

    def of(self, topic: Topic, segment: Segment) -> Mapping[int, ProducerSequence]:
        """Of a segment as it is recorded now."""
        key = ReplicaKey(topic.uid, segment.id)
        known = self._known.get(key)
        if known is not None and known[0] is segment.sequences:
            self._known.move_to_end(key)
            return known[1]
        if known is not None:
            self._forget(key)
        recorded = {s.producer_id: s for s in segment.sequences}
        self._known[key] = segment.sequences, recorded
        self._weight += 1 + len(recorded)
        while len(self._known) > 1 and self._weight > RECORDED_WEIGHT_MAX:
            self._forget(next(iter(self._known)))
        return recorded

    def _forget(self, key: ReplicaKey) -> None:
        _, recorded = self._known.pop(key)
        self._weight -= 1 + len(recorded)


class FoundProducers:
    """Producers of one sealed segment, by id."""

    def __init__(self, recovered: Recovered) -> None:
        self.states: dict[int, ProducerState] = {p.producer_id: p for p in recovered.producers}
        self.is_complete = recovered.producers_complete
        """Whether who is missing has stored nothing that it may still repeat."""
        self.begins_at = recovered.begins_at
        """Offset below which nothing was read: a producer that stored something only there may be missing."""
        self.weight = sum(1 + len(p.recent) for p in recovered.producers)


class _Recovered:
    """Producers of sealed segments as the log files have them: all publishers of a segment come back at once when it
    is sealed, and reading the files for each of them costs."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._known: OrderedDict[ReplicaKey, FoundProducers] = OrderedDict()
        """The longest unused first."""
        self._reading: dict[ReplicaKey, asyncio.Task[FoundProducers]] = {}
        """Goes on when somebody who waits for it has gone: the next one who asks would begin anew."""

    async def of(self, topic: Topic, segment: Segment) -> FoundProducers:
        """Raises as ``recover_segment``."""
        key = ReplicaKey(topic.uid, segment.id)
        if key not in self._known:
            if key not in self._reading:
                task = asyncio.create_task(self._read(key, topic, segment), name=f"producers of {segment}")
                self._reading[key] = task
                task.add_done_callback(lambda done: self._done(key, done))
            reading = self._reading[key]
            await asyncio.wait({reading})
            error = reading.exception()
            if error is not None:
                raise fresh(error) if isinstance(error, SeaweedMQError) else error
            return reading.result()
        self._known.move_to_end(key)
        return self._known[key]

    async def _read(self, key: ReplicaKey, topic: Topic, segment: Segment) -> FoundProducers:
        found = self._known[key] = FoundProducers(await recover_segment(self._store, topic, segment))
        while len(self._known) > 1 and sum(known.weight for known in self._known.values()) > RECOVERED_WEIGHT_MAX:
            self._known.popitem(last=False)
        return found

    def _done(self, key: ReplicaKey, task: "asyncio.Task[FoundProducers]") -> None:
        del self._reading[key]
        if not task.cancelled():
            task.exception()  # told to those who wait, if there still are any
