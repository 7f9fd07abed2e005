"""Whom a client asks."""

import asyncio
import contextlib
import gc
from types import SimpleNamespace
from typing import Any, cast

from seaweedmq.client.cluster import AVOID_S, Cluster, TopicView
from seaweedmq.errors import Closed, Unavailable
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
