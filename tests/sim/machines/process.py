"""A broker process that can be killed, frozen and restarted: a broker, its tasks, and its view of the cluster."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from seaweedmq.broker.broker import Broker
from seaweedmq.broker.membership import Endpoints
from seaweedmq.core.files.conversion import BUSY_CPU_SHARE
from seaweedmq.errors import AlreadyExists, SeaweedMQError
from seaweedmq.kafka.gateway import STOP_GRACE_S
from seaweedmq.kafka.handlers import Handlers
from seaweedmq.model.config import BrokerConfig
from seaweedmq.ports import Environment
from tests.sim.machines.kafka import SNAPSHOT_AFTER_BYTES, KafkaListener, kafka_address
from tests.sim.machines.loop import Owner, OwnerState, SimLoop
from tests.support.history import Violation
from tests.support.insides import Insides

if TYPE_CHECKING:
    from tests.sim.world import World

STOP_S_MAX = 60.0
START_AGAIN_S = 0.5
"""Seconds after which a supervisor restarts a process that ended by itself."""

RESIDENT_BYTES = 100 * 1024 * 1024
"""Resident memory that a process reports, independent of the simulating machine."""


def environment(loop: SimLoop, wall_us: Callable[[], int], seed: str) -> Environment:
    """Return clocks and randomness of one process. It is busy every other second, so that conversion waits."""
    return Environment(
        wall_us,
        random.Random(seed),
        lambda: loop.boot_s,
        resident_bytes=lambda: RESIDENT_BYTES,
        cpu_share=lambda: BUSY_CPU_SHARE if int(loop.time()) % 2 else 0.1,
    )


class BrokerProcess:
    """A machine with one broker. ``life`` counts its starts; each incarnation has its own ``Owner``."""

    def __init__(self, world: "World", name: str, config: BrokerConfig) -> None:
        self.world = world
        self.name = name
        self.address = f"{name}:7777"
        self.config = config
        self.life = 0
        self.owner = Owner(f"{name}.0")
        self.owner.state = OwnerState.DEAD
        self.broker: Broker | None = None
        world.clocks.set_wrong(name)

    @property
    def is_running(self) -> bool:
        return self.owner.state is not OwnerState.DEAD

    @property
    def is_frozen(self) -> bool:
        return self.owner.state is OwnerState.FROZEN

    @property
    def is_well(self) -> bool:
        return self.owner.state is OwnerState.RUNNING and not self._stop_requested.is_set() and not self.meta.is_cut_off

    def runs_as(self, broker_id: str) -> bool:
        """Whether the broker of this id is on that machine now, frozen or not."""
        broker = self.broker
        return broker is not None and broker.id == broker_id and self.owner.state is not OwnerState.DEAD

    @property
    def leaves_well(self) -> bool:
        """Whether it was stopped, and reaches all services that a clean stop needs."""
        is_asked = self.owner.state is OwnerState.RUNNING and self._stop_requested.is_set()
        return is_asked and not self.meta.is_cut_off and self.world.disk.is_calm

    def start(self) -> None:
        assert not self.is_running, f"{self.name} runs already"
        world = self.world
        self.life += 1
        self.owner = Owner(f"{self.name}.{self.life}")
        self.store = world.disk.mounted()
        self.meta = world.etcd.client(self.owner)
        self.broker = None
        self._stop_requested, self._ended = asyncio.Event(), asyncio.Event()
        world.note(self.owner.name, "starts")
        world.network.spawn(self.owner, self._run(self.owner), self.owner.name)

    async def _run(self, owner: Owner) -> None:
        world = self.world
        env = environment(world.loop, lambda: world.clocks.wall_us(self.name), f"{world.seed} {owner.name}")
        broker = self.broker = world.broker_class(
            config=self.config,
            env=env,
            store=self.store,
            meta=self.meta,
            dialer=world.network.dialer(owner),
            converter=world.converter(self.store),
            endpoints=Endpoints(self.address, kafka_address(self.address) if world.scenario.has_kafka else ""),
        )
        memory, scenario = Insides(broker).memory, world.scenario
        memory.logs.limit = memory.replicas.limit = scenario.budget_bytes
        for budget in (memory.intake, memory.reading, memory.relaying, memory.sending):
            budget.limit = scenario.passage_bytes
        world.network.serve(self.address, owner, broker.api)
        try:
            await broker.start()
            world.note(owner.name, f"runs as {broker.id}")
            kafka = self._open_kafka(broker, owner) if scenario.has_kafka else None
            stop = asyncio.create_task(self._stop_requested.wait())
            endings: list[asyncio.Future[Any]] = [stop, broker.failed]
            await asyncio.wait(endings, return_when=asyncio.FIRST_COMPLETED)
            if broker.failed.done():
                world.violations.append(Violation("gave up", f"{owner.name}: {broker.failed.exception()!r}"))
                broker.failed.result()
            if kafka is not None:
                await kafka[0].close()
            await broker.stop()
            if kafka is not None:
                await kafka[1].stop(STOP_GRACE_S)
            world.note(owner.name, "stopped as asked")
        except AlreadyExists as error:  # every address has one process, and no earlier incarnation still runs
            world.violations.append(Violation("own address", f"{owner.name}: {error!r}"))
        except SeaweedMQError as error:
            world.note(owner.name, f"gave up: {error}")
        self._end(owner)
        world.loop.call_later(START_AGAIN_S, self._start_again, owner, context=world.context)

    def _open_kafka(self, broker: Broker, owner: Owner) -> tuple[Handlers, KafkaListener]:
        handlers = Handlers(broker.ports, snapshot_after_bytes=SNAPSHOT_AFTER_BYTES)
        listener = KafkaListener(handlers, self.config, broker.ports.runtime.memory.in_flight_bytes)
        self.world.network.serve(kafka_address(self.address), owner, listener)
        return handlers, listener

    def _end(self, owner: Owner) -> None:
        owner.state = OwnerState.DEAD
        self.world.network.break_owner(owner, silently=False)
        self._ended.set()

    def _start_again(self, owner: Owner) -> None:
        if self.owner is owner and not self.world.is_over:
            self.start()

    def request_stop(self) -> None:
        self.world.note(self.owner.name, "is stopped by SIGTERM")
        self._stop_requested.set()

    async def wait_stopping(self) -> None:
        """Wait for a requested stop to end, so that healing does not leave the process in between."""
        if self.is_running and self._stop_requested.is_set():
            async with asyncio.timeout(STOP_S_MAX):
                await self._ended.wait()

    def freeze(self) -> Owner:
        """Send SIGSTOP. Return the frozen owner."""
        self.world.note(self.owner.name, "is frozen")
        self.owner.state = OwnerState.FROZEN
        return self.owner

    def suspend(self) -> Owner:
        """Suspend the machine: as frozen, but its monotonic clock also stops. Return the suspended owner."""
        self.world.note(self.owner.name, "is suspended")
        self.world.loop.suspend(self.owner)
        return self.owner

    def thaw(self, owner: Owner) -> None:
        """Send SIGCONT, or wake the machine; do nothing if that incarnation is over or already runs."""
        if owner.state is not OwnerState.FROZEN:
            return
        self.world.note(owner.name, "is thawed")
        if owner.suspended_at is None:
            self.world.loop.thaw(owner)
        else:
            self.world.loop.resume(owner)

    def kill(self, *, machine: bool) -> None:
        """Send SIGKILL; with ``machine`` the power also fails, and unflushed bytes are lost."""
        assert self.is_running, f"{self.name} is dead already"
        world = self.world
        world.watch.sample()
        owner = self.owner
        owner.state = OwnerState.DEAD
        world.network.break_owner(owner, silently=machine)
        self._ended.set()
        torn = self.store.kill()
        if machine:
            world.disk.lose_power(world.cluster.state.brokers_at(self.address))
        world.note(owner.name, f"{'loses power' if machine else 'is killed'}, {torn} torn writes")
