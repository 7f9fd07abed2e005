"""Clients that give credit and then read nothing, unlike the product's: they must not fill a broker's memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen, SubscribeRequest
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from tests.sim.machines.loop import Owner

if TYPE_CHECKING:
    from tests.sim.world import World

CREDIT_BYTES = 64 * MIB
SLEEP_S_MAX = 6.0
"""Longest sleep in seconds, shorter than any timeout: requests waiting for memory behind sleepers succeed in the end.
"""


class Sleeper:
    """A client that, segment by segment, opens a stream, lets it fill, and closes it."""

    def __init__(self, world: "World", name: str, topic: str) -> None:
        self.name = name
        self.owner = Owner(name)
        self._topic = TopicName.parse(topic)
        self._world = world
        self._rng = world.rng(name)
        self._dialer = world.network.dialer(self.owner)

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.1, 1.0))
            state = self._world.cluster.state
            segments = sorted(state.segments.get(self._topic, {}).values(), key=lambda s: s.id)
            if not segments:
                continue
            segment = self._rng.choice(segments)
            api = self._dialer.dial(state.addresses[segment.primary])
            try:
                async with aclosing(api.subscribe(_opening(segment))) as replies:  # type: ignore[type-var]
                    await anext(replies)
                    self._world.note(self.name, f"sleeps at {segment}")
                    await asyncio.sleep(self._rng.uniform(0.5, SLEEP_S_MAX))
            except (SeaweedMQError, StopAsyncIteration) as error:
                self._world.note(self.name, f"cannot sleep at {segment}: {error!r}")


async def _opening(segment: Segment) -> AsyncIterator[SubscribeRequest]:
    yield SubscribeOpen(topic=segment.topic, segment=segment.id, start=EARLIEST, credit_bytes=CREDIT_BYTES)
    await asyncio.Event().wait()
