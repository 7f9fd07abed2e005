"""Brokers that are stopped or drained at any moment: while they start, lose their lease, or come back as another."""

import asyncio
import logging
from contextlib import suppress
from itertools import pairwise
from typing import Any

import pytest

from seaweedmq.broker.leader.registration_reaper import RETRY_S
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_to_json
from seaweedmq.errors import NotFound, SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.messages.calls import DrainBroker
from seaweedmq.model.topic import Durability
from seaweedmq.ports import Delete, Put
from tests.broker.testbed import CONFIG, NAME, TTL_S, Host, Testbed

DELAYS_S = [0.0, 0.0005, 0.001, 0.002, 0.003, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0]
"""Delays after the end of a lease, from the notification to long after the broker is back."""


def registered(testbed: Testbed) -> set[str]:
    """Return the ids in etcd, after checking that each id and each address has a living lease."""
    entries = [e for prefix in (keys.BROKERS, keys.ADDRESSES) for e in testbed.etcd.server.list(prefix).entries]
    assert all(testbed.etcd.has_lease(e.lease) for e in entries), entries
    return {keys.parse_broker_key(e.key) for e in entries if e.key.startswith(keys.BROKERS)}


async def everything_is_served(testbed: Testbed) -> None:
    """Wait until every open segment is at living brokers that have opened it."""
    observer = next(h for h in testbed.hosts if h.lives)

    def served() -> bool:
        living = {h.broker.id: h for h in testbed.hosts if h.lives}
        segments = observer.inspect.view.segments.get(NAME, {}).values()
        open_ = [s for s in segments if s.is_open]
        return bool(open_) and all(
            s.primary in living
            and (NAME, s.id) in living[s.primary].inspect.segments
            and set(s.replicas) <= set(living)
            for s in open_
        )

    await testbed.until(served, 60)
    assert registered(testbed) == {h.broker.id for h in testbed.hosts if h.lives}


async def three(testbed: Testbed, replicas: int = 1) -> tuple[list[Host], Host]:
    hosts = await testbed.several(3, segments=3, replicas=replicas, durability=Durability.STORED)
    victim = await testbed.primary(hosts[0])
    await (await victim.publisher()).store(frames=5)
    return hosts, victim


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("delay_s", DELAYS_S)
async def test_a_broker_is_stopped_around_the_end_of_its_lease(testbed: Testbed, delay_s: float, replicas: int) -> None:
    _, victim = await three(testbed, replicas)
    victim.expire_lease()
    await victim.session.lost.wait()
    await asyncio.sleep(delay_s)
    began = testbed.loop.time()
    await victim.stop()
    assert testbed.loop.time() - began < 5 * TTL_S
    await everything_is_served(testbed)


@pytest.mark.parametrize("cut_off_s", [0.5, 3 * TTL_S])
@pytest.mark.parametrize("delay_s", [0.0, 0.003, 0.01, 0.1])
async def test_a_broker_is_stopped_as_it_returns_and_etcd_is_gone(
    testbed: Testbed, delay_s: float, cut_off_s: float
) -> None:
    _, victim = await three(testbed)
    victim.expire_lease()
    await victim.session.lost.wait()
    await asyncio.sleep(delay_s)
    victim.meta.is_cut_off = True
    stopping = asyncio.create_task(victim.stop())
    await asyncio.sleep(cut_off_s)
    victim.meta.is_cut_off = False
    await asyncio.wait_for(stopping, 30)
    await asyncio.sleep(2 * TTL_S)
    await everything_is_served(testbed)


@pytest.mark.parametrize("delay_s", DELAYS_S)
async def test_a_broker_is_drained_at_any_moment_around_the_loss_of_its_lease(testbed: Testbed, delay_s: float) -> None:
    hosts, victim = await three(testbed)
    other = next(h for h in hosts if h is not victim)
    old, lost = victim.broker.id, victim.session.lost
    victim.expire_lease()
    await lost.wait()
    await asyncio.sleep(delay_s)
    with suppress(NotFound):  # its id is in no view at the moment; the operator retries
        await victim.broker.api.call(DrainBroker(victim.broker.id))
    await testbed.until(lambda: all(victim.broker.id in h.inspect.view.brokers for h in (other, victim)))
    await victim.broker.api.call(DrainBroker(victim.broker.id))
    await testbed.until(
        lambda: (info := other.inspect.view.brokers.get(victim.broker.id)) is not None and info.draining
    )
    await testbed.until(
        lambda: (
            not any(
                s.is_open and {old, victim.broker.id} & set(s.replicas)
                for s in other.inspect.view.segments[NAME].values()
            )
        )
    )
    await everything_is_served(testbed)


async def test_all_leases_end_and_one_broker_is_stopped_while_they_come_back(testbed: Testbed) -> None:
    hosts, victim = await three(testbed)
    for host in hosts:
        host.expire_lease()
    await victim.session.lost.wait()
    await victim.stop()
    await everything_is_served(testbed)


@pytest.mark.parametrize("at_s", [0.0, 0.001, 0.002, 0.004, 0.006, 0.01, 0.02])
async def test_a_broker_is_stopped_while_it_starts(testbed: Testbed, at_s: float) -> None:
    await testbed.several(2, segments=3)
    host = Host(testbed, CONFIG, "broker-9:7777", 9)
    testbed.hosts.append(host)
    starting = testbed.network.spawn(host.owner, host.broker.start())
    await asyncio.sleep(at_s)
    starting.cancel()
    await asyncio.wait({starting})
    await host.stop()
    await everything_is_served(testbed)


@pytest.mark.parametrize("delay_s", [0.0, 0.001, 0.003, 0.01, 0.1, 1.0])
async def test_the_lease_of_a_broker_is_lost_while_it_is_stopped(testbed: Testbed, delay_s: float) -> None:
    _, victim = await three(testbed)
    lease = victim.session.lease
    stopping = asyncio.create_task(victim.stop())
    await asyncio.sleep(delay_s)
    testbed.etcd.server.expire_lease(lease)
    began = testbed.loop.time()
    await stopping
    assert testbed.loop.time() - began < 5 * TTL_S
    await everything_is_served(testbed)


async def test_the_lease_of_the_last_broker_is_lost_while_it_stores_what_it_has(testbed: Testbed) -> None:
    host, publisher = await testbed.publishing()
    await publisher.store(frames=3)
    host.expire_lease()
    await host.stop()
    assert registered(testbed) == set()


@pytest.mark.parametrize("restart", [False, True])
async def test_a_registration_without_a_lease_is_reaped(
    testbed: Testbed, restart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, victim = await three(testbed, replicas=2)
    victim.kill()
    ghost = BrokerInfo(
        id=victim.broker.id, address=victim.address, started_us=1, pid=1, version="0.1.0", draining=False
    )
    monkeypatch.setattr("seaweedmq.coordination.limits.LEASED", ())
    testbed.etcd.server.transact(
        [],
        [
            Put(keys.broker_key(ghost.id), broker_to_json(ghost)),
            Put(keys.address_key(ghost.address), ghost.id.encode()),
        ],
    )
    monkeypatch.undo()
    if restart:  # no broker remembers how the ghost arose
        for host in hosts:
            if host.lives:
                host.kill()
        await asyncio.sleep(2 * TTL_S)
        for number in range(2):
            await testbed.start(address=f"new-{number}:7777")
    await everything_is_served(testbed)
    assert testbed.etcd.server.get(keys.broker_key(ghost.id)) is None
    await testbed.start(address=victim.address)


async def test_a_failed_reaping_is_retried_after_a_pause(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    (host,) = await testbed.cluster(1)
    stale = keys.address_key("broker-9:7777")
    transact, attempts = host.meta.transact, list[float]()

    async def fail(compares: Any, then: Any) -> int | None:
        if Delete(stale) in then and len(attempts) < 5:
            attempts.append(testbed.loop.time())
            raise Unavailable("etcd has no leader: retry")
        return await transact(compares, then)

    monkeypatch.setattr(host.meta, "transact", fail)
    monkeypatch.setattr("seaweedmq.coordination.limits.LEASED", ())
    testbed.etcd.server.transact([], [Put(stale, b"b-stale")])
    await testbed.until(lambda: testbed.etcd.server.get(stale) is None)
    assert [later - earlier for earlier, later in pairwise(attempts)] == pytest.approx([RETRY_S] * 4)


async def test_a_broker_takes_an_address_that_has_no_lease(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seaweedmq.coordination.limits.LEASED", ())
    testbed.etcd.server.transact([], [Put(keys.address_key("broker-0:7777"), b"b-ghost")])
    monkeypatch.undo()
    (host,) = await testbed.cluster(1)
    assert registered(testbed) == {host.broker.id}


async def test_what_is_said_of_a_lease_that_has_ended_is_refused(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    incarnation = host.inspect.incarnation
    host.expire_lease()
    with pytest.raises(SeaweedMQError, match=f"the lease of broker {incarnation.id} has ended: register again"):
        await incarnation.announce_draining()
    await testbed.until(lambda: host.inspect.incarnation is not incarnation)
    with pytest.raises(SeaweedMQError, match=f"the lease of broker {incarnation.id} has ended: register again"):
        await incarnation.announce_draining()
    assert registered(testbed) == {host.broker.id}


@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize(
    "apart_s", [0.0, 0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.008, 0.01, 0.012, 0.015, 0.02, 0.025, 0.03]
)
async def test_stopping_the_last_brokers_is_no_failure(
    testbed: Testbed, apart_s: float, replicas: int, caplog: pytest.LogCaptureFixture
) -> None:
    hosts = await testbed.several(3, segments=6, replicas=replicas)
    for n in range(6):
        await testbed.publish(n)
    stopping = []
    for host in hosts:
        stopping.append(asyncio.create_task(host.stop()))
        await asyncio.sleep(apart_s)
    await asyncio.wait_for(asyncio.gather(*stopping), 10)
    assert registered(testbed) == set()
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING] == []


async def test_a_lease_that_ends_before_its_broker_is_registered_is_followed_by_another(testbed: Testbed) -> None:
    """Etcd is so slow that it ends the lease before the registration under it arrives."""
    hosts = await testbed.several(2)
    victim = hosts[1]
    transact, late = victim.meta.transact, [3]

    async def slow(compares: Any, then: Any) -> int | None:
        registrations = [w for w in then if isinstance(w, Put) and w.key.startswith(keys.BROKERS)]
        if registrations and late[0]:
            late[0] -= 1
            testbed.etcd.server.expire_lease(registrations[0].lease)
        return await transact(compares, then)

    victim.meta.transact = slow  # type: ignore[method-assign]
    victim.expire_lease()
    await testbed.until(lambda: not late[0] and victim.broker.id in registered(testbed))
    assert not victim.broker.failed.done()
    await everything_is_served(testbed)
