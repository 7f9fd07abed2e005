"""A topic whose first data are plain records and tables at once: it takes one kind, and keeps what it acknowledged."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seaweedmq.errors import SeaweedMQError
from tests.sim.loop import Owner
from tests.sim.scenario import AdoptionPlan
from tests.sim.workload import connect
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

RULE = "one kind"
COLUMN = "number"
TABLE_ROWS = 3


class Adoption:
    """The topic, and the two publishers that do not agree what it is for."""

    def __init__(self, world: "World", plan: AdoptionPlan) -> None:
        self.plan = plan
        self.name = plan.topic.name
        self._world = world
        self._rng = world.rng("adoption")
        self._plain: set[bytes] = set()
        """Values that were acknowledged."""
        self._numbers: set[int] = set()
        """The same of tables."""
        self._got: dict[str, Counter[bytes | int]] = {}
        """By reader."""

    async def run(self) -> None:
        """Until both publishers have an outcome for everything they sent."""
        world = self._world
        users = [Owner("plain publisher"), Owner("table publisher")]
        await asyncio.gather(
            world.network.spawn(users[0], self._publish(users[0], self._send_plain), users[0].name),
            world.network.spawn(users[1], self._publish(users[1], self._send_table), users[1].name),
        )

    async def read(self, name: str) -> None:
        """Everything, as batches."""
        world = self._world
        owner = Owner(name)
        got = self._got[name] = Counter()
        client = await connect(world, owner, world.scenario.subscriber)
        async with client, client.subscriber(self.name, start="earliest", stop_at="latest") as subscriber:
            async for batch in subscriber.batches():
                column = COLUMN if COLUMN in batch.schema.names else "_value"
                got.update(batch[column].to_pylist())
        world.note(name, f"read {got.total()} rows")

    def violations(self) -> Iterator[Violation]:
        """Once all is read."""
        if self._plain and self._numbers:
            yield Violation(RULE, f"{self.name} acknowledged {len(self._plain)} plain records and a table")
        for reader, got in self._got.items():
            if lost := (self._plain | self._numbers) - got.keys():
                yield Violation("lost", f"{reader} never got {len(lost)} acknowledged rows of {self.name}")
            if twice := [row for row, count in got.items() if count > 1]:
                yield Violation("duplicated", f"{reader} got {twice[:3]} of {self.name} more than once")

    async def _publish(self, owner: Owner, send: Any) -> None:
        world = self._world
        await asyncio.sleep(self._rng.uniform(0, self.plan.starts_s_max))
        client = await connect(world, owner, self.plan.config)
        try:
            async with client, client.publisher(self.name) as publisher:
                for number in range(self.plan.sends):
                    await send(publisher, number)
                    await asyncio.sleep(self._rng.uniform(0, self.plan.pause_s_max))
        except SeaweedMQError as error:
            world.note(owner.name, f"ends: {error!r}")

    async def _send_plain(self, publisher: Any, number: int) -> None:
        value = b"plain %d" % number
        try:
            await (await publisher.send(value, key=b"key"))
        except SeaweedMQError as error:
            self._world.note("plain publisher", f"{number} failed: {error!r}")
        else:
            self._plain.add(value)

    async def _send_table(self, publisher: Any, number: int) -> None:
        rows = range(number * TABLE_ROWS, (number + 1) * TABLE_ROWS)
        table = pa.table({COLUMN: pa.array(rows, pa.int64())})
        try:
            await (await publisher.send_table(table))
        except SeaweedMQError as error:
            self._world.note("table publisher", f"{number} failed: {error!r}")
        else:
            self._numbers.update(rows)
