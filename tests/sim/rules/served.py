"""Rule that every open segment is served: once all is well, its primary lives, has opened it, and accepts records."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from seaweedmq.model.segment import Segment
from tests.support.insides import Insides

if TYPE_CHECKING:
    from seaweedmq.broker.broker import Broker
    from tests.sim.world import World

SERVED_S_MAX = 60.0
"""Seconds after the last fault."""


def unserved(world: "World") -> Iterator[str]:
    """Yield a sentence for every open segment that no broker serves now."""
    brokers = {p.broker.id: p.broker for p in world.processes if p.is_running and p.broker is not None and p.broker.id}
    for segments in world.cluster.state.segments.values():
        for segment in segments.values():
            if segment.is_open:
                yield from _unserved(segment, brokers)


def _unserved(segment: Segment, brokers: dict[str, "Broker"]) -> Iterator[str]:
    if gone := [replica for replica in segment.replicas if replica not in brokers]:
        yield f"{segment} has replicas on {gone}, which run nowhere"
        return
    owned = Insides(brokers[segment.primary]).segments.get(segment.key)
    if owned is None:
        yield f"{segment} is not opened by its primary {segment.primary}"
    elif owned.rejection is not None or owned.failure is not None:
        yield f"{segment} takes no records at its primary {segment.primary}: {owned.rejection or owned.failure}"
