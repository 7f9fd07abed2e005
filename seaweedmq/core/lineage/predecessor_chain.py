"""The sealed predecessors whose producer state still matters to an open segment.

The search does not end by wall clock. The timestamps of a lineage come from several leaders: a clock that is ahead
would make a segment of a few seconds look old, and a repeated batch look new. The search ends by evidence:

- The broker has known for ``producer_idle_s`` of its steady clock that the segment is sealed. No producer repeats
  anything that old.
- A later segment names the producer, in its record or its log files: the state is there.
- A record had no room for every producer, and the segment's log files, which stay for ``producer_idle_s``, are gone.

A broker that has just started has no such evidence, and searches as far as the metadata reaches. A later segment there
may have known the producer and dropped it when it was idle. So a state from before such a segment is trusted only if
the producer continues it or repeats what it covers: sequences never go back. A gap after it is a lost batch only if the
later segments cannot have dropped the producer (:func:`leaves_gap`).
"""

from collections.abc import Callable, Iterator, Mapping

from seaweedmq.model.producer import unwrapped
from seaweedmq.model.segment import ProducerState, Segment

GENERATIONS_MAX = 1_000
"""Most generations that the search goes back."""
READ_MAX = 16
"""Most segments whose log files are read for one frame."""


def predecessor_chain(
    segment: Segment, known: Mapping[int, Segment], sealed_for_s: Callable[[Segment], float], within_s: float
) -> Iterator[Segment]:
    """Yield the sealed ancestors of a segment, the nearest first, that are sealed for at most ``within_s``.

    Later, producers repeat nothing of a segment; ``sealed_for_s`` is by the broker's steady clock. The chain ends at a
    segment with several predecessors: Kafka's partitions never merge.
    """
    for _ in range(GENERATIONS_MAX):
        if len(segment.predecessors) != 1:
            return
        ancestor = known.get(segment.predecessors[0])
        if ancestor is None or ancestor.is_open or sealed_for_s(ancestor) >= within_s:
            return
        yield ancestor
        segment = ancestor


def leaves_gap(state: ProducerState, producer_epoch: int, first_sequence: int) -> bool:
    """Whether a frame neither continues nor repeats what a state covers, so that frames are missing in between."""
    if producer_epoch != state.producer_epoch:
        return producer_epoch > state.producer_epoch and first_sequence != 0
    return unwrapped(first_sequence, state.next_sequence) > state.next_sequence
