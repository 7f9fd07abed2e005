"""The etcd adapter where it differs from the one in memory: endpoints that refuse, are silent, or come and go."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from seaweedmq.codec.state import keys
from seaweedmq.coordination.etcd import EtcdMetaStore, parse_endpoints
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.coordination.session import Session
from seaweedmq.errors import InvalidArgument, Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.ports import Put

REFUSES = "127.0.0.1:1"


@contextlib.asynccontextmanager
async def black_hole() -> AsyncIterator[str]:
    """An endpoint that accepts connections and never answers."""
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


@pytest.mark.integration
async def test_a_broker_gets_its_address_back_when_etcd_was_killed_too(etcd: LocalEtcd) -> None:
    """A restarted etcd gives every lease its full time again, plus the time of an election."""
    store = EtcdMetaStore(etcd.endpoint, timeout_s=0.5, rng=random.Random(1))
    lease = await store.grant_lease(1.5)
    left = BrokerInfo(id="b-killed", address="h:1", started_us=0, pid=1, version="0")
    await store.transact([], [Put(keys.address_key(left.address), left.id.encode(), lease)])
    await etcd.kill()
    await etcd.start()
    session = Session(store, 1.5, random.Random(1))
    await session.open(replace(left, id="b-back"))
    assert session.alive()
    await session.close()
    await store.close()


@pytest.mark.integration
async def test_any_living_endpoint_will_do(etcd: LocalEtcd) -> None:
    loop = asyncio.get_running_loop()
    async with black_hole() as silent:
        for seed in range(4):
            store = EtcdMetaStore(f"{REFUSES},{silent},{etcd.endpoint}", timeout_s=0.5, rng=random.Random(seed))
            began = loop.time()
            assert await store.get(f"/k{seed}") is None
            assert loop.time() - began < 3
            revision = await store.transact([], [Put(f"/k{seed}", b"")])
            assert revision is not None
            async with asyncio.timeout(2):
                assert (await anext(store.watch("/k", revision))).puts[0].key == f"/k{seed}"
            await store.close()
            store = EtcdMetaStore(f"{REFUSES},{etcd.endpoint}", rng=random.Random(seed))
            assert await store.transact([], [Put("/other", b"")]) is not None, "no endpoint has it: the next one may"
            await store.close()


async def test_a_transaction_that_may_have_happened_is_not_sent_again() -> None:
    async with black_hole() as silent:
        store = EtcdMetaStore(f"{silent},{silent}", timeout_s=0.3, rng=random.Random(1))
        began = asyncio.get_running_loop().time()
        with pytest.raises(Unavailable, match=silent):
            await store.transact([], [Put("/k", b"")])
        assert asyncio.get_running_loop().time() - began < 0.6, "one attempt"
        await store.close()


@pytest.mark.integration
async def test_many_calls_survive_a_change_of_connection(etcd: LocalEtcd) -> None:
    """Calls in flight on an abandoned connection end with an answer or Unavailable, never with a cancellation."""
    store = EtcdMetaStore(etcd.endpoint, timeout_s=0.5, rng=random.Random(1))
    stop = asyncio.get_running_loop().time() + 3

    async def call() -> int:
        failures = 0
        while asyncio.get_running_loop().time() < stop:
            try:
                await store.get("/k")
            except Unavailable:
                failures += 1
        return failures

    calls = [asyncio.create_task(call()) for _ in range(10)]
    await asyncio.sleep(0.3)
    etcd.freeze()
    await asyncio.sleep(1.0)
    etcd.thaw()
    await asyncio.sleep(0.5)
    await etcd.kill()
    await etcd.start()
    await asyncio.gather(*calls)
    assert await store.get("/k") is None
    await store.close()


async def test_with_nobody_there_it_says_who_was_asked() -> None:
    store = EtcdMetaStore(REFUSES, timeout_s=0.5, rng=random.Random(1))
    for call in (store.get("/k"), store.list("/k"), store.grant_lease(1), store.renew_lease(1)):
        with pytest.raises(Unavailable, match=REFUSES):
            await call
    with pytest.raises(Unavailable):
        await anext(store.watch("/k", 1))
    await store.close()


def test_endpoints_are_read_or_refused() -> None:
    assert parse_endpoints("a:1, http://b:2/,[::1]:3") == ("a:1", "b:2", "[::1]:3")
    for text in ("", "a", "a:", ":1", "a:1,,b:2", "a:x", "a:0", "a:65536", "a:\u0661"):
        with pytest.raises(InvalidArgument, match="HOST:PORT"):
            parse_endpoints(text)


@pytest.mark.parametrize("repeatable", [False, True])
async def test_a_connection_closed_under_a_call_is_an_outage_and_no_cancellation(repeatable: bool) -> None:
    """The state after a freeze: the deadline of a call has passed, and closing the connection notices it first."""
    async with black_hole() as silent:
        store = EtcdMetaStore(silent, timeout_s=5.0, rng=random.Random(1))
        call = asyncio.create_task(store.get("/k") if repeatable else store.transact([], [Put("/k", b"")]))
        await asyncio.sleep(0.05)
        for _ in range(3):
            if store._current is not None:  # noqa: SLF001 - gRPC has no other way to close it under a call
                connection, store._current = store._current, None  # noqa: SLF001
                await connection.channel.close(None)
                await asyncio.sleep(0.3)
        with pytest.raises(Unavailable, match="closed during a call"):
            await call
        await store.close()


async def test_a_call_that_is_cancelled_is_cancelled() -> None:
    async with black_hole() as silent:
        store = EtcdMetaStore(silent, timeout_s=5.0, rng=random.Random(1))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await store.get("/k")
        await store.close()
