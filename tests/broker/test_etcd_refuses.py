"""No error of etcd ends a broker: the broker retries, or ends the call that met the error."""

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from seaweedmq.broker.readiness import LEASE, START
from seaweedmq.coordination.observed import PROBE_S
from seaweedmq.errors import (
    Corrupt,
    InvalidArgument,
    LeaseEnded,
    OutOfRange,
    ResourceExhausted,
    SeaweedMQError,
    Unavailable,
    Unsupported,
)
from seaweedmq.model.broker import ETCD_OK, ClusterStatus
from seaweedmq.model.messages.calls import GetClusterStatus
from seaweedmq.model.topic import Durability, TopicName
from tests.broker.testbed import CONFIG, NAME, TTL_S, Host, Testbed

LATER = TopicName("test", "later")
NO_SPACE = "database space exceeded"
LIMITS = {
    NO_SPACE: ("transact", "grant_lease"),  # etcd with the alarm NOSPACE reads, renews and deletes
    "too many requests": ("get", "list", "transact", "grant_lease", "renew_lease"),
}
UNARY = ("get", "list", "transact", "grant_lease", "renew_lease", "revoke_lease")
CALLS = (*UNARY, "watch")
KINDS: tuple[type[SeaweedMQError], ...] = (
    *(Unavailable, ResourceExhausted, InvalidArgument, OutOfRange, LeaseEnded, Corrupt, Unsupported),
    SeaweedMQError,
)


def refuse(host: Host, error: SeaweedMQError, calls: tuple[str, ...]) -> Callable[[], None]:
    """Let etcd reject these calls of one broker; return a function that ends it."""

    async def call(*_: Any) -> Any:
        await asyncio.sleep(0.001)
        raise type(error)(str(error))

    async def watch(*_: Any) -> AsyncIterator[Any]:
        await call()
        yield

    for name in calls:
        setattr(host.meta, name, watch if name == "watch" else call)

    def end() -> None:
        for name in calls:
            delattr(host.meta, name)

    return end


def limit(why: str) -> ResourceExhausted:
    return ResourceExhausted(f"etcd is at a limit ({why}): raise its quota")


async def recovered(testbed: Testbed, brokers: int, name: TopicName) -> None:
    """Check that the cluster is whole again, and accepts topics and records."""
    await testbed.until(
        lambda: (
            all(
                len(h.inspect.view.brokers) == brokers and h.broker.readiness.is_ready for h in testbed.hosts if h.lives
            )
            and any(h.inspect.leads for h in testbed.hosts if h.lives)
        )
    )
    await testbed.topic(testbed.leader(), name=name)
    await (await (await testbed.primary(testbed.leader(), name=name)).publisher(name=name)).store()
    assert not any(host.has_failed for host in testbed.hosts)


@pytest.mark.parametrize("what", ["nothing else", "the leader is killed", "a lease ends"])
@pytest.mark.parametrize("why", LIMITS)
async def test_an_etcd_at_a_limit_ends_no_broker_and_all_resumes(testbed: Testbed, why: str, what: str) -> None:
    hosts = await testbed.several(3, replicas=2, durability=Durability.REPLICATED)
    leader = testbed.leader()
    ends = [refuse(host, limit(why), LIMITS[why]) for host in hosts]
    if what == "the leader is killed":
        leader.kill()
    if what == "a lease ends":
        victim = next(h for h in hosts if h is not leader)
        victim.expire_lease()
    await asyncio.sleep(10 * TTL_S)
    living = [host for host in hosts if host.lives]
    assert not any(host.has_failed for host in living)
    for end in ends:
        end()
    await recovered(testbed, len(living), LATER)


async def test_out_of_space_publishing_goes_on_and_the_status_says_why_etcd_refuses(testbed: Testbed) -> None:
    hosts = await testbed.several(2)
    leader = testbed.leader()
    other = next(host for host in hosts if host is not leader)
    assert (await status_of(other)).etcd == ETCD_OK
    publisher = await (await testbed.primary(hosts[0])).publisher()
    ends = [refuse(host, limit(NO_SPACE), LIMITS[NO_SPACE]) for host in hosts]
    for _ in range(10):
        await publisher.store()
        await asyncio.sleep(TTL_S / 2)
    with pytest.raises(ResourceExhausted, match="raise its quota"):
        await testbed.topic(other, name=LATER)
    assert all(host.broker.readiness.is_ready for host in hosts), "their leases live"
    status = await status_of(other)
    assert status.leader == leader.broker.id
    assert NO_SPACE in status.etcd
    access = {b.info.id: b.etcd for b in status.brokers}[leader.broker.id]
    assert access is not None
    assert NO_SPACE in access.trouble
    assert 0 < access.lease_s <= TTL_S
    for end in ends:
        end()
    await asyncio.sleep(2 * PROBE_S)  # there are no other writes
    assert (await status_of(other)).etcd == ETCD_OK
    await recovered(testbed, 2, LATER)


async def status_of(host: Host) -> ClusterStatus:
    status: ClusterStatus = await host.api.call(GetClusterStatus())
    return status


async def test_without_a_leader_the_status_is_that_of_the_broker_that_is_queried(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    testbed.etcd.server.stop()
    await testbed.until(lambda: not any(host.broker.readiness.is_ready for host in hosts))
    for host in hosts:
        status = await status_of(host)
        assert status.leader == ""
        assert "etcd lease renewals: etcd refused the connection" in status.etcd
        access = {b.info.address: b.etcd for b in status.brokers}[host.address]
        assert access is not None
        assert access.lease_s <= 0
    testbed.etcd.server.start()
    await recovered(testbed, 2, LATER)
    assert (await status_of(hosts[0])).etcd == ETCD_OK


async def test_who_starts_without_etcd_space_waits(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    await testbed.cluster(1)
    host = Host(testbed, CONFIG, "broker-1:7777", 1)
    testbed.hosts.append(host)
    end = refuse(host, limit(NO_SPACE), LIMITS[NO_SPACE])
    starting = testbed.network.spawn(host.owner, host.broker.start())
    await asyncio.sleep(20 * TTL_S)
    assert not starting.done()
    assert {START, LEASE} <= host.broker.readiness.reasons.keys()
    said = [record.getMessage() for record in caplog.records if NO_SPACE in record.getMessage()]
    assert len(said) == 2, said  # one of the calls, one of the registration
    end()
    await starting
    await recovered(testbed, 2, LATER)
    assert any("succeeds again after" in record.getMessage() for record in caplog.records)


async def test_every_error_of_every_call_at_any_moment_leaves_a_cluster_that_recovers(testbed: Testbed) -> None:
    rng = random.Random(32)
    await testbed.cluster(3)
    await testbed.topic(testbed.leader(), replicas=2)
    number = 0
    for kind in KINDS:
        for call in CALLS:
            number += 1
            whose = rng.choice(["leader", "follower", "newcomer"])
            if whose == "newcomer":
                testbed.hosts[-1].kill()
                host = Host(testbed, CONFIG, f"broker-{number + 10}:7777", number + 10)
                testbed.hosts.append(host)
                end = refuse(host, kind("injected"), (call,))
                starting = testbed.network.spawn(host.owner, host.broker.start())
            else:
                await asyncio.sleep(rng.uniform(0, TTL_S))
                await testbed.until(lambda: any(h.inspect.leads for h in testbed.hosts if h.lives))
                leader = testbed.leader()
                host = leader if whose == "leader" else next(h for h in testbed.hosts if h.lives and h is not leader)
                end = refuse(host, kind("injected"), (call,))
                starting = None
                if rng.random() < 0.5:
                    host.expire_lease()
            await asyncio.sleep(rng.uniform(0, 3 * TTL_S))
            end()
            if starting is not None:
                await starting
            try:
                await recovered(testbed, 3, TopicName("test", f"later-{number}"))
            except Exception as error:
                raise AssertionError(f"{kind.__name__} of {call} at the {whose}: {error!r}") from error
    assert NAME in testbed.leader().inspect.view.topics
