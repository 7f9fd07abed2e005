"""Operator that splits, merges, moves and seals segments, adds partitions and deletes records, through any broker."""

import random
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

from seaweedmq.errors import InvalidArgument, OutOfRange, SeaweedMQError
from seaweedmq.model.kafka.group_admin import INTERNAL_TOPICS
from seaweedmq.model.messages.calls import (
    AlterTopic,
    DrainBroker,
    MergeSegments,
    MoveSegment,
    RaiseLowWatermark,
    SealSegment,
    SplitSegment,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicChange
from tests.sim.machines.loop import Owner

if TYPE_CHECKING:
    from tests.sim.world import World

OPEN_SEGMENTS_MAX = 8
"""Open segments of a topic beyond which the operator merges rather than splits, so that runs stay small."""


class Operator:
    """An operator that acts on metadata that may be stale by then."""

    def __init__(self, world: "World", rng: random.Random) -> None:
        self._world = world
        self._rng = rng
        self._dialer = world.network.dialer(Owner("operator"))

    async def reshape(self) -> None:
        """Request a random change of segments from a random broker, which may reject it."""
        world = self._world
        topics = list(world.cluster.state.topics)
        if not topics:
            return
        name = self._rng.choice(topics)
        known = world.cluster.state.segments.get(name, {}).values()
        segments = sorted((s for s in known if s.is_open), key=lambda s: s.slots)
        if not segments:
            return
        api = self._dialer.dial(self._rng.choice(world.processes).address)
        partitions = world.cluster.state.topics[name].partitions
        what, call = self._chosen(api, segments) if partitions is None else self._of_partitions(api, segments)
        try:
            await call
        except SeaweedMQError as error:
            world.note("operator", f"{what} failed: {error}")
        else:
            world.note("operator", f"{what} is done")

    async def move(self, segment: Segment) -> None:
        """Ask a random broker to move it to other brokers, or to the same ones."""
        what, call = self._move(self._dialer.dial(self._rng.choice(self._world.processes).address), segment)
        try:
            await call
        except SeaweedMQError as error:
            self._world.note("operator", f"{what} failed: {error}")

    async def seal(self, segment: Segment) -> None:
        """Ask a random broker to seal it, so that a successor begins."""
        what, call = self._seal(self._dialer.dial(self._rng.choice(self._world.processes).address), segment)
        try:
            await call
        except SeaweedMQError as error:
            self._world.note("operator", f"{what} failed: {error}")

    async def delete_records(self) -> None:
        """Ask a random broker to delete the first records of a partition; only its primary knows the exact limit."""
        world, rng = self._world, self._rng
        topics = world.cluster.state.topics.values()
        parted = [topic for topic in topics if topic.partitions and topic.name.name not in INTERNAL_TOPICS]
        if not parted:
            return
        topic = rng.choice(parted)
        partition = rng.randrange(topic.partitions or 1)
        known = world.cluster.state.segments.get(topic.name, {}).values()
        segments = [s for s in known if partition in s.slots]
        edges = [edge for s in segments for edge in (s.start_offset, s.end_offset) if edge is not None]
        before = rng.choice(edges or [0]) + rng.choice((0, 0, 1, 3, 10))
        api = self._dialer.dial(rng.choice(world.processes).address)
        taken_back = world.retained.deleting(topic.name, partition, before)
        what = f"deletes {topic.name} partition {partition} before {before}"
        try:
            marks = await api.call(RaiseLowWatermark(topic.name, {partition: before}))
        except SeaweedMQError as error:
            world.note("operator", f"{what}, failed: {error}")
            if isinstance(error, OutOfRange | InvalidArgument):
                taken_back()
        else:
            world.note("operator", f"{what}: {marks}")
            world.retained.deleted(topic.name, marks)

    async def drain(self) -> None:
        """Ask a random broker to drain a random one, which is restarted or stays without segments."""
        world = self._world
        process = self._rng.choice(world.processes)
        api = self._dialer.dial(self._rng.choice(world.processes).address)
        world.note("operator", f"drains {process.address}")
        try:
            await api.call(DrainBroker(process.address))
        except SeaweedMQError as error:
            world.note("operator", f"{process.address} is not drained: {error}")
            return
        world.note("operator", f"{process.address} is drained")
        if process.is_running:
            process.request_stop()

    def _chosen(self, api: Any, segments: list[Segment]) -> tuple[str, Awaitable[object]]:
        rng = self._rng
        segment = rng.choice(segments)
        kinds = ["move", "seal"]
        if len(segments) < OPEN_SEGMENTS_MAX and segment.slots.width > 1:
            kinds += ["split"] * 3
        if len(segments) > 1:
            kinds += ["merge"] * 3
        kind = rng.choice(kinds)
        if kind == "split":
            at = rng.choice((None, rng.randrange(segment.slots.lo + 1, segment.slots.hi)))
            return f"split {segment} at {at}", api.call(SplitSegment(segment.topic, segment.id, at))
        if kind == "merge":
            first = rng.randrange(len(segments) - 1)
            one, other = segments[first : first + 2]
            return f"merge {one} and {other}", api.call(MergeSegments(one.topic, one.id, other.id))
        return self._move(api, segment) if kind == "move" else self._seal(api, segment)

    def _of_partitions(self, api: Any, segments: list[Segment]) -> tuple[str, Awaitable[object]]:
        rng = self._rng
        segment = rng.choice(segments)
        kinds = ["move", "seal"]
        if len(segments) < OPEN_SEGMENTS_MAX and segment.topic.name not in INTERNAL_TOPICS:
            kinds += ["add"] * 2
        kind = rng.choice(kinds)
        if kind == "add":
            partitions = len(segments) + rng.choice((1, 1, 2))
            change = TopicChange(partitions=partitions)
            return f"have {segment.topic} grow to {partitions}", api.call(AlterTopic(segment.topic, change))
        return self._move(api, segment) if kind == "move" else self._seal(api, segment)

    def _move(self, api: Any, segment: Segment) -> tuple[str, Awaitable[object]]:
        some = self._rng.sample(self._world.processes, len(segment.replicas))
        brokers = tuple(process.address for process in some)
        return f"move {segment} to {brokers}", api.call(MoveSegment(segment.topic, segment.id, brokers))

    def _seal(self, api: Any, segment: Segment) -> tuple[str, Awaitable[object]]:
        return f"seal {segment}", api.call(SealSegment(segment.topic, segment.id))
