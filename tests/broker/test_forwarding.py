"""Calls forwarded to the leader: they end, even if brokers disagree about the leader or either side goes away."""

import asyncio
import gc
import random
from collections import Counter
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.broker.leader_forwarder import LeaderForwarder
from seaweedmq.broker.peer_connections import PeerConnections
from seaweedmq.errors import Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.messages.calls import DrainBroker, GetClusterStatus
from seaweedmq.model.messages.groups import GroupOpen
from seaweedmq.model.messages.subscribe import EARLIEST
from tests.broker.testbed import CONFIG, NAME, Host, Streaming, Testbed


def passing_on() -> LeaderForwarder:
    """Return a forwarder to a leader that stays."""
    leader = BrokerInfo(id="b-2", address="127.0.0.1:1", started_us=0, pid=1, version="1")
    view = SimpleNamespace(
        leader="b-2", brokers={"b-2": leader}, changes=0, wait_change=lambda _: asyncio.Event().wait()
    )
    dialer = SimpleNamespace(dial=lambda address: SimpleNamespace(forwarded=address))
    own = SimpleNamespace(leading=False, broker_id="b-1")
    return LeaderForwarder(cast(Any, view), cast(Any, dialer), lambda: cast(Any, own), random.Random(1), 1.0)


async def test_an_error_that_comes_when_the_caller_is_gone_is_no_failure_of_the_broker() -> None:
    forwarding = passing_on()
    opened = asyncio.Event()

    async def replies(_: object) -> AsyncIterator[int]:
        opened.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise Unavailable("the leader is unreachable as well") from None
        yield 0

    async def call() -> None:
        async for _ in forwarding.stream(cast(Any, None), replies):
            pass

    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    caller = asyncio.create_task(call())
    await opened.wait()
    caller.cancel()
    await asyncio.wait({caller})
    del caller  # frees what its traceback holds
    gc.collect()
    assert not complaints


async def test_a_call_is_ended_at_the_leader_if_its_caller_goes_away_as_a_reply_comes() -> None:
    forwarding, ask, ended = passing_on(), asyncio.Event(), asyncio.Event()

    async def replies(_: object) -> AsyncIterator[int]:
        try:
            await ask.wait()
            yield 0
        finally:
            ended.set()

    async def call() -> None:
        async for _ in forwarding.stream(cast(Any, None), replies):
            raise AssertionError("it was cancelled before that")

    caller = asyncio.create_task(call())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    gc.disable()  # a collection would also end it, eventually
    try:
        ask.set()
        await asyncio.sleep(0)  # the reply has arrived, and the caller has not run yet
        caller.cancel()
        await asyncio.wait({caller})
        assert ended.is_set()
    finally:
        gc.enable()


async def disagreeing(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Host], Counter[str]]:
    """Make two brokers take each other for the leader, and count the calls by method."""
    hosts = await testbed.cluster(2)
    calls: Counter[str] = Counter()
    answer = testbed.network.answer

    async def counted(stream: Any, host: Any, method: str) -> None:
        calls[method] += 1
        await answer(stream, host, method)

    monkeypatch.setattr(testbed.network, "answer", counted)
    for one, other in (hosts, hosts[::-1]):
        one.meta.hears.clear()
        one.inspect.view.leader = other.broker.id
        monkeypatch.setattr(one.inspect.leader.metadata.__class__, "leading", False)
    return hosts, calls


async def test_no_call_circles_between_brokers_that_disagree(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts, calls = await disagreeing(testbed, monkeypatch)
    with pytest.raises(Unavailable, match=r"is not the leader, broker .* is: retry"):
        await hosts[0].api.call(GetClusterStatus())
    stream = Streaming(testbed, hosts[0].api.join_group)
    await stream.send(GroupOpen(group="g", topic=NAME, member="m", client="c", start=EARLIEST, incarnation=1, held={}))
    assert "is not the leader" in str(await stream.failure())
    assert (calls["call"], calls["join_group"]) == (2, 2)
    monkeypatch.undo()


async def test_nor_is_the_draining_of_a_returned_broker(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    hosts = await testbed.cluster(2)
    for host in hosts:
        host.meta.hears.clear()
    old = hosts[1].broker.id
    hosts[1].expire_lease()
    await testbed.until(lambda: hosts[1].broker.id != old)
    with pytest.raises(Unavailable, match=f"broker {old} was replaced by {hosts[1].broker.id} a moment ago: retry"):
        await hosts[0].api.call(DrainBroker(old))
    for host in hosts:
        host.meta.hears.set()


async def test_a_leader_that_has_not_heard_of_its_own_cluster_yet_makes_callers_wait(testbed: Testbed) -> None:
    host = Host(testbed, CONFIG, "broker-0:7777", 0)
    testbed.hosts.append(host)
    host.meta.hears.clear()
    await testbed.network.spawn(host.owner, host.broker.start())
    await asyncio.sleep(1)
    assert not host.inspect.view.brokers, "the registration is still on its way to the view"
    creating = asyncio.ensure_future(testbed.topic(host))
    await asyncio.sleep(1)
    assert not creating.done()
    host.meta.hears.set()
    assert (await creating).topic.name == NAME


class Phone:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def dial(self, address: str) -> Any:
        self.asked.append(f"dial {address}")
        return address

    def renew(self, address: str) -> None:
        self.asked.append(f"renew {address}")

    async def close(self) -> None: ...


def test_each_broker_at_an_address_is_connected_to_anew() -> None:
    phone = Phone()
    brokers: dict[str, Any] = {"b-1": SimpleNamespace(address="here:1"), "b-2": SimpleNamespace(address="there:1")}
    peers = PeerConnections(cast(Any, SimpleNamespace(brokers=brokers)), phone)
    for _ in range(2):
        assert cast(Any, peers.dial("b-1")) == "here:1"
    assert phone.asked == ["renew here:1", "dial here:1", "dial here:1"]

    phone.asked.clear()
    brokers["b-3"] = SimpleNamespace(address="here:1")  # while the lease of its predecessor lives
    peers.dial("b-3")
    peers.dial("b-1")
    peers.dial("b-3")
    assert phone.asked == ["renew here:1", *["dial here:1"] * 3]

    del brokers["b-1"]
    with pytest.raises(Unavailable, match="broker b-1 is not registered"):
        peers.dial("b-1")
