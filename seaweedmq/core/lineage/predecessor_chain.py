"""Predecessors whose producer state still matters to an open segment. Pure.

No wall clock ends the search. Stamps of a lineage come from several leaders: one whose clock is ahead would make a
segment of a few seconds an old one, and a repeated batch a new one. What ends it is evidence:

- The broker has known for ``producer_idle_s`` of its steady clock that the segment is sealed. No producer repeats
  anything that old.
- A later segment names the producer, in its record or its log files: that is where it is.
- A record had no room for every producer, and the segment's log files, which stay for ``producer_idle_s``, are gone.

A broker that has just started has seen nothing, and searches as far as the metadata reaches. There a later segment may
have known the producer, and forgotten it when it was idle. So a state that comes from behind such a segment is believed
if the producer continues it, or repeats what it covers: sequences never go back. A gap behind it is a lost batch only
if the later segments cannot have forgotten the producer (:func:`leaves_gap`).
"""

from collections.abc import Callable, Iterator, Mapping

from seaweedmq.model.producer import unwrapped
from seaweedmq.model.segment import ProducerState, Segment

GENERATIONS_MAX = 1_000
"""Segments that the search goes back at most."""
READ_MAX = 16
"""Segments whose log files are read for one frame at most."""


def predecessor_chain(
    segment: Segment, known: Mapping[int, Segment], sealed_for_s: Callable[[Segment], float], within_s: float
) -> Iterator[Segment]:
    """Yield the sealed segments that came before, the nearest first.

    A segment that has several predecessors has no elders: Kafka's partitions never merge.

    Args:
        sealed_for_s: for how long the broker has known by its steady clock that a segment is sealed.
        within_s: producers repeat nothing of segments that were sealed longer ago.
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
    """Whether a frame neither continues nor repeats what a state covers: something is missing in between."""
    if producer_epoch != state.producer_epoch:
        return producer_epoch > state.producer_epoch and first_sequence != 0
    return unwrapped(first_sequence, state.next_sequence) > state.next_sequence
