"""Blows by which etcd answers with errors: of any kind, to any call, and as an etcd out of space does."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.sim.machines.etcd_errors import ANSWERS, EtcdErrors, MetaCall
from tests.sim.nemesis.losses import Losses

if TYPE_CHECKING:
    from tests.sim.world import World

SHORT_S = (0.2, 4.0)
LEASES = 3.0
"""Lifetimes of a lease for which etcd is out of space."""


class EtcdAnswers:
    """Errors of one broker's calls, or of all brokers', for a while."""

    def __init__(self, world: "World", losses: Losses) -> None:
        self._world = world
        self._losses = losses
        self._rng = world.rng("etcd answers")

    async def answer_with_errors(self) -> None:
        """Answer one call, or every call, with errors of one kind, always or sometimes."""
        if self._losses.spared:
            return
        rng = self._rng
        answer = rng.choice(tuple(ANSWERS))
        calls = set(MetaCall)
        if answer == "invalid" and self._world.group.members:
            calls.remove(MetaCall.TRANSACT)  # permanent there: it ends the committing member
        errors = EtcdErrors(
            rng=rng,
            answer=answer,
            calls=frozenset(rng.choice((sorted(calls), *([call] for call in sorted(calls))))),
            machine=rng.choice((None, rng.choice(self._world.processes).name)),
            share=rng.choice((0.3, 1.0)),
            is_applied=answer == "unavailable" and rng.random() < 0.5,
        )
        with self._answering(errors):
            await asyncio.sleep(rng.uniform(*SHORT_S))

    async def run_out_of_space(self) -> None:
        """Have etcd reject puts and leases while a broker dies or leases end."""
        if self._losses.spared:
            return
        rng = self._rng
        with self._answering(EtcdErrors(rng=rng, answer="no space")):
            await asyncio.sleep(rng.uniform(0, 0.5))
            process = self._losses.some_broker(rng)
            kind = rng.choice(("nothing", "kill", "lose leases"))
            if kind == "lose leases" and not self._losses.spared:
                self._world.etcd.lose_leases()
            elif kind == "kill" and process is not None:
                process.kill(machine=False)
                await asyncio.sleep(1.0)
                if not process.is_running:
                    process.start()
            await asyncio.sleep(LEASES * self._world.scenario.broker.lease_ttl_s)

    @contextmanager
    def _answering(self, errors: EtcdErrors) -> Iterator[None]:
        etcd = self._world.etcd
        self._world.note("nemesis", str(errors))
        etcd.errors.append(errors)
        etcd.run(etcd.server.wake)
        try:
            yield
        finally:
            self._world.note("nemesis", f"ends: {errors}")
            etcd.errors.remove(errors)
