"""Rules that bound etcd's content by the living objects: unneeded keys disappear soon."""

import asyncio
from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

from seaweedmq.codec.state import keys
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from tests.sim.machines.clocks import QUIET_ERROR_S, WILD_ERROR_S
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

RULE = "metadata"
LOOK_AGAIN_S = 0.2
KEPT_S_MAX = 60.0
"""Longest retention in seconds that the rules wait for."""
ROUNDS = 4
"""Maintenance rounds of the brokers, each of which may end early when the brokers change ..."""
SETTLED_S = 20.0
"""... and the seconds they need to find a leader."""


async def let_go(world: "World") -> list[Violation]:
    """Wait until no leftover remains; return the leftovers that stay too long as violations."""
    patience_s = _patience_s(world)
    since: dict[str, float] = {}
    while True:
        now = world.loop.time()
        since = {what: since.get(what, now) for what in leftovers(world)}
        if late := [what for what, first in since.items() if first + patience_s < now]:
            return [Violation(RULE, f"for {patience_s:g} s etcd has held {what}") for what in late]
        if not since:
            return []
        await asyncio.sleep(LOOK_AGAIN_S)


def leftovers(world: "World") -> Iterator[str]:
    """Yield keys that etcd holds and must drop sooner or later."""
    state, config = world.cluster.state, world.scenario.broker
    for name, segments in state.segments.items():
        topic = state.topics.get(name)
        if topic is None:
            yield from (f"segment {segment} of a deleted topic" for segment in segments.values())
            continue
        if config.segment_retention_s <= KEPT_S_MAX:
            yield from _emptied(topic, segments, _with_files(world, name))
        if config.producer_retention_s <= KEPT_S_MAX:
            old = (s for s in segments.values() if s.sequences and not s.is_open)
            yield from (f"the sequences of {len(s.sequences)} producers of {s}, which is sealed" for s in old)
    for key in state.committed:
        name, group, number = keys.parse_offset_key(key)
        if number not in state.segments.get(name, {}):
            yield f"what group {group} committed of segment {number} of {name}, which is known no more"
    yield from (
        f"group {group} of {name}, which was deleted" for name, group in state.groups if name not in state.topics
    )
    left = world.etcd.server.list(keys.DELETIONS).entries
    yield from (f"{entry.key}, though the cluster is idle" for entry in left)


def _emptied(topic: Topic, segments: Mapping[int, Segment], with_files: Container[int]) -> Iterator[str]:
    """Yield cleanly sealed segments without records left whose predecessors are all pruned."""
    staying: set[int] = set()
    for number, segment in sorted(segments.items()):
        had_none = segment.start_offset == segment.end_offset
        may_go = not segment.is_open and number not in with_files and (had_none or topic.has_retention)
        if may_go and staying.isdisjoint(segment.predecessors):
            yield f"{segment}, which is sealed and holds nothing"
        else:
            staying.add(number)


def _with_files(world: "World", name: TopicName) -> set[int]:
    store = world.disk.store
    described = (store.described(path, file) for path, file in store.files.items())
    return {file.segment for file in described if file is not None and file.topic == name}


def _patience_s(world: "World") -> float:
    config = world.scenario.broker
    kept = [s for s in (config.segment_retention_s, config.producer_retention_s) if s <= KEPT_S_MAX]
    clocks_s = 2 * (WILD_ERROR_S if world.clocks.is_wild else QUIET_ERROR_S)  # one clock ahead, another behind
    pause_s = max(config.maintenance_interval_s, config.log_grace_s / 4)
    return SETTLED_S + ROUNDS * pause_s + 2 * max(kept, default=0.0) + clocks_s
