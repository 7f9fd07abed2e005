"""Tests of sessions and elections alone, in many worlds: never two leaders, and one again soon after all is well."""

import asyncio
import random

import pytest

from seaweedmq.coordination.election import Election
from seaweedmq.coordination.session import Session
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.broker import BrokerInfo
from tests.sim.machines.determinism import deterministic
from tests.sim.machines.loop import Owner, OwnerState, SimLoop
from tests.sim.machines.meta import SimEtcd
from tests.sim.machines.network import Network

TTL_S = 2.0


class Candidate:
    """A process that only runs for leader, session after session."""

    def __init__(self, world: "ElectionWorld", name: str) -> None:
        self.world = world
        self.name = name
        self.life = 0
        self.start()

    def start(self) -> None:
        self.life += 1
        self.owner = Owner(f"{self.name}.{self.life}")
        self.meta = self.world.etcd.client(self.owner)
        self.election: Election | None = None
        self.world.network.spawn(self.owner, self.run(), self.owner.name)

    @property
    def believes_to_lead(self) -> bool:
        alive = self.owner.state is not OwnerState.DEAD
        return alive and self.election is not None and self.election.revision is not None

    async def run(self) -> None:
        rng = random.Random(self.owner.name)
        for number in range(1_000):
            session = Session(self.meta, TTL_S, rng)
            broker_id = f"{self.owner.name}-{number}"
            info = BrokerInfo(id=broker_id, address=f"{self.name}:1", started_us=0, pid=1, version="0")
            try:
                await session.open(info)
                self.election = Election(self.meta, session, broker_id, rng)
                await self.election.run()
            except SeaweedMQError as error:
                self.world.log.append(f"{self.world.loop.time():.3f} {broker_id}: {error!r}")
            await session.close()
            await asyncio.sleep(rng.uniform(0.1, 0.5))


class ElectionWorld:
    def __init__(self, seed: int) -> None:
        self.loop = SimLoop(time_s_max=300)
        self.rng = random.Random(f"election {seed}")
        self.network = Network(self.loop, self.rng)
        self.etcd = SimEtcd(self.loop, self.rng)
        self.log: list[str] = []
        self.terms: list[str] = []
        self.failures: list[str] = []

    async def run(self) -> None:
        self.candidates = [Candidate(self, f"c{number}") for number in range(3)]
        watching = self.loop.create_task(self.watch())
        for _ in range(15):
            await asyncio.sleep(self.rng.uniform(0, 2))
            await self.strike(self.rng.choice(self.candidates))
        self.etcd.lost_share = 0.0
        for candidate in self.candidates:
            candidate.meta.is_cut_off = False
        await asyncio.sleep(3.5 * TTL_S)
        watching.cancel()
        self.leads_at_the_end = sum(c.believes_to_lead for c in self.candidates)

    async def watch(self) -> None:
        """Sample often enough to see an overlap of a few milliseconds."""
        while self.loop.is_running():
            leaders = [c.owner.name for c in self.candidates if c.believes_to_lead]
            assert len(leaders) <= 1, f"{leaders} lead at once at {self.loop.time():.3f}"
            if leaders and self.terms[-1:] != leaders:
                self.terms += leaders
            await asyncio.sleep(0.005)

    async def strike(self, candidate: Candidate) -> None:
        blow = self.rng.randrange(7)
        self.log.append(f"{self.loop.time():.3f} blow {blow} on {candidate.owner.name}")
        if blow == 0:
            candidate.owner.state = OwnerState.DEAD
            self.network.break_owner(candidate.owner, silently=True)
            candidate.start()
        elif blow == 1:
            candidate.owner.state = OwnerState.FROZEN
            await asyncio.sleep(self.rng.uniform(0, 3 * TTL_S))
            self.loop.thaw(candidate.owner)
        elif blow == 2:
            candidate.meta.is_cut_off = not candidate.meta.is_cut_off
        elif blow == 3:
            self.etcd.run(self.etcd.server.stop)
            await asyncio.sleep(self.rng.uniform(0, 2 * TTL_S))
            self.etcd.run(self.etcd.server.start)
        elif blow == 4:
            self.etcd.run(self.etcd.server.freeze)
            await asyncio.sleep(self.rng.uniform(0, 2 * TTL_S))
            self.etcd.run(self.etcd.server.thaw)
        elif blow == 5:
            self.etcd.lost_share = self.rng.choice((0.0, 0.1, 0.5))
        elif self.etcd.server.compacted_revision < self.etcd.server.revision:
            self.etcd.run(self.etcd.server.compact, self.etcd.server.revision)


def play(seed: int) -> ElectionWorld:
    with deterministic():
        world = ElectionWorld(seed)
        try:
            world.loop.run_until_complete(world.run())
            world.failures = world.loop.failures()
        finally:
            world.loop.close()
    return world


@pytest.mark.parametrize("seed", range(20))
def test_never_two_leaders_and_soon_one(seed: int) -> None:
    world = play(seed)
    assert world.failures == []
    assert world.leads_at_the_end == 1, "a healthy cluster has a leader"
    assert world.terms


def test_leadership_does_change_hands_in_these_worlds() -> None:
    assert len(play(1).terms) > 2


def test_a_leader_that_trusts_a_lease_it_can_not_renew_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Session, "alive", lambda session: session.lease != 0 and not session.lost.is_set())
    caught = [seed for seed in range(10) if any("lead at once" in line for line in play(seed).failures)]
    assert caught
