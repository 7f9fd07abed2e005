"""Whom a client asks."""

import asyncio
import contextlib

from seaweedmq.client.cluster import AVOID_S, Cluster
from seaweedmq.errors import Unavailable
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
