"""Whom a client asks."""

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
    cluster._avoided["b:1"] -= AVOID_S
    assert {cluster.addresses()[-1] for _ in range(50)} == {"a:1", "b:1", "c:1"}
