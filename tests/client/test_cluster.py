"""Whom a client asks."""

import asyncio
import contextlib
import gc
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.client.cluster import AVOID_S, Cluster, TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import Closed, Refused, Unavailable
from seaweedmq.model.protocol import TopicDescription
from seaweedmq.model.topic import TopicName
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster


async def test_a_broker_out_of_reach_is_asked_last_for_a_while() -> None:
    cluster = Cluster(("a:1", "b:1", "c:1"), FakeCluster().dialer(), environment(), QUICK)
    assert {cluster.addresses()[-1] for _ in range(50)} == {"a:1", "b:1", "c:1"}
    with contextlib.suppress(Unavailable), cluster.reaching("b:1"):
        raise Unavailable("frozen")
    assert {cluster.addresses()[-1] for _ in range(50)} == {"b:1"}
    cluster._avoided["b:1"] = (cluster._avoided["b:1"][0] - AVOID_S, 1)
    assert {cluster.addresses()[-1] for _ in range(50)} == {"a:1", "b:1", "c:1"}


async def test_a_broker_that_did_not_answer_gets_little_time_at_first_and_then_more() -> None:
    cluster = Cluster(("a:1", "b:1"), FakeCluster().dialer(), environment(), QUICK)
    times_s = [cluster.answer_timeout_s("b:1")]
    for _ in range(7):
        await asyncio.sleep(0.001)
        with contextlib.suppress(TimeoutError), cluster.reaching("b:1"):
            raise TimeoutError
        times_s.append(cluster.answer_timeout_s("b:1"))
    assert times_s == [10.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert cluster.answer_timeout_s("a:1") == 10.0


async def test_one_failure_that_many_streams_notice_counts_once() -> None:
    cluster = Cluster(("a:1", "b:1"), FakeCluster().dialer(), environment(), QUICK)

    async def stream() -> None:
        with contextlib.suppress(Unavailable), cluster.reaching("b:1"):
            await asyncio.sleep(0.01)
            raise Unavailable("frozen")

    await asyncio.gather(*(stream() for _ in range(10)))
    assert cluster.answer_timeout_s("b:1") == 0.5


async def test_a_refresh_that_fails_when_nobody_waits_any_more_is_no_complaint() -> None:
    closing = asyncio.Event()

    async def describe(_: TopicName, __: float) -> TopicDescription:
        await closing.wait()
        raise Closed("the client was closed")

    cluster = SimpleNamespace(describe=describe, config=QUICK)
    view = TopicView(cast(Any, cluster), TopicName("shop", "orders"), lambda _: None)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    waiting = asyncio.create_task(view.description(refresh=True))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    closing.set()
    assert view._refreshing is not None
    await asyncio.wait({view._refreshing})
    del view, waiting
    gc.collect()
    assert not complaints


def failing(errors: dict[str, Exception]) -> Any:
    """A dialer to brokers that answer every call with an error; addresses without one do not answer at all."""

    async def cluster_status(address: str) -> None:
        if address in errors:
            raise errors[address]
        await asyncio.Event().wait()

    return SimpleNamespace(dial=lambda address: SimpleNamespace(cluster_status=lambda: cluster_status(address)))


async def connect(errors: dict[str, Exception], config: ClientConfig) -> tuple[str, float]:
    """What it says when nobody could be reached, and after how long."""
    cluster = Cluster(("a:1", "b:1"), failing(errors), environment(), config)
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable) as failure:
        await cluster.connect()
    return str(failure.value), asyncio.get_running_loop().time() - began


async def test_where_nobody_listens_connecting_soon_ends_and_says_once_what_to_do() -> None:
    refused = Refused("broker a:1 is out of reach (connection refused): check that it runs there, and retry")
    config = ClientConfig(connect_timeout_s=5, connect_refused_s=0.1, backoff_s_max=0.05)
    text, took_s = await connect({"a:1": refused, "b:1": refused}, config)
    assert took_s < 1
    before, after = text.split(", tried ")
    assert before.startswith("could not connect to the cluster within 0.")
    tried, remedy = after.split(". ")
    assert sorted(tried.split("; ")) == ["a:1: connection refused", "b:1: connection refused"]
    assert remedy == "Check that brokers run there"


@pytest.mark.parametrize("other", [None, Unavailable("no broker leads the cluster at the moment: try again")])
async def test_while_one_address_may_yet_answer_connecting_goes_on(other: Exception | None) -> None:
    config = ClientConfig(connect_timeout_s=0.5, connect_refused_s=0.05, rpc_timeout_s=0.1, backoff_s_max=0.05)
    errors: dict[str, Exception] = {"a:1": Refused("broker a:1 is out of reach")}
    text, took_s = await connect(errors | ({"b:1": other} if other else {}), config)
    assert took_s > 0.4
    assert text.count("heck that") == 1
    assert ("b:1: no broker leads" if other else "b:1: no answer within 0.1 s") in text


async def test_a_broker_that_begins_to_listen_meanwhile_is_found() -> None:
    errors: dict[str, Exception] = {"a:1": Refused("nobody"), "b:1": Refused("nobody")}
    dialer = failing(errors)
    status = SimpleNamespace(brokers=())
    cluster = Cluster(("a:1", "b:1"), dialer, environment(), ClientConfig(connect_refused_s=2.0, backoff_s_max=0.05))
    connecting = asyncio.create_task(cluster.connect())
    await asyncio.sleep(0.2)

    async def answer() -> Any:
        return status

    dialer.dial = lambda address: SimpleNamespace(cluster_status=answer)
    assert await connecting is status
