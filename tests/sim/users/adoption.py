"""A topic whose first data are plain records and tables at once: it accepts one kind, and keeps acknowledged data."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from seaweedmq.errors import SeaweedMQError
from tests.sim.machines.loop import Owner
from tests.sim.scenario import AdoptionPlan
from tests.sim.users.workload import connect
from tests.support.history import Violation

if TYPE_CHECKING:
    from tests.sim.world import World

RULE = "one kind"
NO_OUTCOME_RULE = "no outcome"
OUTCOME_LATE_S = 5.0
"""Seconds after ``delivery_timeout_s`` by which every record has its outcome."""
COLUMN = "number"
TABLE_ROWS = 3


class Adoption:
    """The topic, and its two publishers of different kinds."""

    def __init__(self, world: "World", plan: AdoptionPlan) -> None:
        self.plan = plan
        self.name = plan.topic.name
        self._world = world
        self._rng = world.rng(self.name.removeprefix("sim/"))
        self._plain: set[bytes] = set()
        """Acknowledged plain values."""
        self._numbers: set[int] = set()
        """Acknowledged numbers of table rows."""
        self._got: dict[str, Counter[bytes | int]] = {}
        """Received values by reader."""
        self._overdue_s: dict[str, float] = {}
        """Deadline of each sent value that has no outcome yet."""

    async def run(self) -> None:
        """Run until both publishers have an outcome for everything they sent."""
        world = self._world
        number = self.name.removeprefix("sim/adoption")
        users = [Owner(f"plain publisher{number}"), Owner(f"table publisher{number}")]
        if self.plan.begins_s:
            await asyncio.sleep(self.plan.begins_s)
        await asyncio.gather(
            world.network.spawn(users[0], self._publish(users[0], self._send_plain), users[0].name),
            world.network.spawn(users[1], self._publish(users[1], self._send_table), users[1].name),
        )

    async def read(self, name: str) -> None:
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
        """Judge the readers, once all is read."""
        if self._plain and self._numbers:
            yield Violation(RULE, f"{self.name} acknowledged {len(self._plain)} plain records and a table")
        for reader, got in self._got.items():
            if lost := (self._plain | self._numbers) - got.keys():
                yield Violation("lost", f"{reader} never got {len(lost)} acknowledged rows of {self.name}")
            if twice := [row for row, count in got.items() if count > 1]:
                yield Violation("duplicated", f"{reader} got {twice[:3]} of {self.name} more than once")

    def overdue(self) -> Iterator[Violation]:
        """Yield overdue outcomes, even if the run ended early."""
        for what, until_s in self._overdue_s.items():
            if self._world.loop.time() > until_s:
                yield Violation(NO_OUTCOME_RULE, f"{what} of {self.name} should have one since {until_s:.1f} s")

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
            await self._outcome(f"{value!r}", await publisher.send(value, key=b"key"))
        except SeaweedMQError as error:
            self._world.note("plain publisher", f"{number} failed: {error!r}")
        else:
            self._plain.add(value)

    async def _outcome(self, what: str, sent: Any) -> None:
        self._overdue_s[what] = self._world.loop.time() + self.plan.config.delivery_timeout_s + OUTCOME_LATE_S
        try:
            await sent
        except SeaweedMQError:
            del self._overdue_s[what]
            raise
        del self._overdue_s[what]

    async def _send_table(self, publisher: Any, number: int) -> None:
        rows = range(number * TABLE_ROWS, (number + 1) * TABLE_ROWS)
        table = pa.table({COLUMN: pa.array(rows, pa.int64())})
        try:
            await self._outcome(f"table {number}", await publisher.send_table(table))
        except SeaweedMQError as error:
            self._world.note("table publisher", f"{number} failed: {error!r}")
        else:
            self._numbers.update(rows)
