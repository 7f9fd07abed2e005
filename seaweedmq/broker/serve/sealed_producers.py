"""Producer progress in sealed segments, from the segment's record or its log files.

A producer in neither of them stored nothing that it may repeat, provided that they are complete. If they are not, the
answer is an error: a guess would store records twice or lose them.
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
"""Number of producers and frames from log files of sealed segments in the cache: some 150 bytes each."""
RECORDED_WEIGHT_MAX = 64_000
"""Number of sealed segments and producers from their records in the cache: some 100 bytes each."""
OFFSETS_TIMEOUT_S = 3.0
"""Longest time in seconds for reading files that only the offsets of the last frames depend on."""

Sequences: TypeAlias = tuple[ProducerSequence, ...]


class SealedProducers:
    """The producers of sealed segments, for publishers of the segment and for its successors."""

    def __init__(self, store: SegmentStore) -> None:
        self._recorded = _Recorded()
        self._recovered = _Recovered(store)

    async def progress(
        self, topic: Topic, segment: Segment, producer_id: int, producer_epoch: int, first_sequence: int
    ) -> tuple[int, tuple[FrameAck, ...]]:
        """Return the next sequence of a producer that repeats nothing below ``first_sequence``, and its last frames.

        The frames are empty if no acknowledgement is missing, or if their offsets are unknown. Raises Fenced if the
        segment has a newer epoch of the producer, and OutOfRange if the record is incomplete and some log files are
        gone.
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
                f"{segment} is sealed, its record has no room for producer {producer_id}, and its last log file "
                f"is gone. The segment may hold what the producer sent from sequence {first_sequence} on: check the "
                "topic before you send it again. Log files of such segments are retained for producer_idle_s: delete "
                "none earlier, and raise the setting if publishers return later"
            )
        return first_sequence, ()

    def recorded(self, topic: Topic, segment: Segment) -> Mapping[int, ProducerSequence]:
        """Return the producers in the segment's record, by id."""
        return self._recorded.of(topic, segment)

    def is_new_epoch(self, topic: Topic, segment: Segment, producer_id: int, producer_epoch: int) -> bool:
        """Whether the record names the producer with an earlier epoch: the segment then holds nothing of this one."""
        recorded = self.recorded(topic, segment).get(producer_id)
        return recorded is not None and recorded.producer_epoch < producer_epoch

    async def recovered(self, topic: Topic, segment: Segment) -> "FoundProducers":
        """Return the producers in the segment's log files, read once for all callers; errors of ``recover_segment``."""
        return await self._recovered.of(topic, segment)

    async def _with_frames(
        self, topic: Topic, segment: Segment, recorded: ProducerSequence
    ) -> tuple[int, tuple[FrameAck, ...]]:
        try:
            async with asyncio.timeout(OFFSETS_TIMEOUT_S):
                found = await self.recovered(topic, segment)
        except (Corrupt, NotFound, StorageFailed, TimeoutError) as error:
            log.warning("offset lookup failed: %s, a publisher gets no offsets: %s", segment, error or "timed out")
            return recorded.next_sequence, ()
        state = found.states.get(recorded.producer_id)
        if state is None or state.producer_epoch != recorded.producer_epoch:
            return recorded.next_sequence, ()
        return state.next_sequence, state.recent


def _check_epoch(segment: Segment, known: ProducerSequence, producer_epoch: int) -> None:
    if known.producer_epoch > producer_epoch:
        raise Fenced(
            f"producer {known.producer_id} epoch {producer_epoch} was fenced by epoch {known.producer_epoch} in "
            f"{segment}: another instance uses its identity: stop this one"
        )


class _Recorded:
    """A cache of producers by id from the records of sealed segments, whose publishers all return at once."""

    def __init__(self) -> None:
        self._known: OrderedDict[ReplicaKey, tuple[Sequences, dict[int, ProducerSequence]]] = OrderedDict()
        """The cached segments, the least recently used first."""
        self._weight = 0

    def of(self, topic: Topic, segment: Segment) -> Mapping[int, ProducerSequence]:
        """Return the producers in the current record of a segment."""
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
    """The producers of one sealed segment, from its log files."""

    def __init__(self, recovered: Recovered) -> None:
        self.states: dict[int, ProducerState] = {p.producer_id: p for p in recovered.producers}
        self.is_complete = recovered.producers_complete
        """Whether an absent producer has stored nothing that it may still repeat."""
        self.begins_at = recovered.begins_at
        """The offset below which nothing was read. A producer that stored records only there may be absent."""
        self.weight = sum(1 + len(p.recent) for p in recovered.producers)


class _Recovered:
    """A cache of producers from the log files of sealed segments: all publishers return at once when one is sealed."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._known: OrderedDict[ReplicaKey, FoundProducers] = OrderedDict()
        """The cached segments, the least recently used first."""
        self._reading: dict[ReplicaKey, asyncio.Task[FoundProducers]] = {}
        """The reads under way. They continue when a caller is cancelled: the next one would otherwise start over."""

    async def of(self, topic: Topic, segment: Segment) -> FoundProducers:
        """Return the producers of a segment, joining a read under way. Raises as ``recover_segment``."""
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
            task.exception()  # retrieved: the waiting callers raise it, if there are any
