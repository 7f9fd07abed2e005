"""Blows during a topic's schema adoption."""

import asyncio
from typing import TYPE_CHECKING

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.messages.calls import SealSegment
from seaweedmq.model.segment import Segment
from tests.sim.machines.loop import Owner

if TYPE_CHECKING:
    from tests.sim.world import World

LOOK_AGAIN_S = 0.002
MOMENT_S_MAX = 2.0
"""Longest wait in seconds for an adoption."""


class AimedAtAdoptions:
    """Blows at the topics that the current metadata show as adopting."""

    def __init__(self, world: "World") -> None:
        self._world = world
        self._rng = world.rng("aimed at adoptions")
        self._dialer = world.network.dialer(Owner("operator in a hurry"))

    async def seal_while_adopting(self) -> None:
        """Replace segments while plain records wait there for the topic's schema decision."""
        end_s = self._world.loop.time() + MOMENT_S_MAX
        while not (found := self._of_undecided_topics()):  # time is virtual
            if self._world.loop.time() >= end_s:
                return
            await asyncio.sleep(LOOK_AGAIN_S)
        await asyncio.sleep(self._rng.choice((0.0, self._rng.uniform(0, 0.05))))
        self._world.note("nemesis", f"has {len(found)} segments sealed whose topic gets a schema")
        await asyncio.gather(*map(self._seal, found))

    def _of_undecided_topics(self) -> list[Segment]:
        state = self._world.cluster.state
        undecided = [name for name, topic in state.topics.items() if topic.adopting is not None]
        return [s for name in undecided for s in state.segments.get(name, {}).values() if s.is_open]

    async def _seal(self, segment: Segment) -> None:
        api = self._dialer.dial(self._rng.choice(self._world.processes).address)
        try:
            await api.call(SealSegment(segment.topic, segment.id))
        except SeaweedMQError as error:
            self._world.note("nemesis", f"{segment} is not sealed: {error}")
