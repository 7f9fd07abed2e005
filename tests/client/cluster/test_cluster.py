"""The order in which a client tries brokers, its connects, and descriptions in pages."""

import asyncio
import contextlib
import gc
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.client.cluster.cluster import AVOID_S, Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.client.config import ClientConfig
from seaweedmq.errors import Closed, ConnectionRefused, NotFound, Unavailable, Unsupported
from seaweedmq.model.description import ALL, IDS_MAX, SegmentSelection, TopicDescription
from seaweedmq.model.messages.calls import DescribeTopic
from seaweedmq.model.topic import TopicName
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster
from tests.support.segments import NAME, make_segment, make_topic


async def test_a_broker_out_of_reach_is_asked_last_for_a_while() -> None:
    cluster = Cluster(("a:1", "b:1", "c:1"), FakeCluster().dialer(), environment(), QUICK)
    assert {cluster.addresses()[-1] for _ in range(50)} == {"a:1", "b:1", "c:1"}
    with contextlib.suppress(Unavailable), cluster.reaching("b:1"):
        raise Unavailable("frozen")
    assert {cluster.addresses()[-1] for _ in range(50)} == {"b:1"}
    await asyncio.sleep(AVOID_S)
    assert {cluster.addresses()[-1] for _ in range(50)} == {"a:1", "b:1", "c:1"}


async def test_another_service_at_one_of_the_addresses_is_passed_over(cluster: FakeCluster) -> None:
    """Other pods may get the addresses of brokers. It is an error only if no address knows the call."""
    dialer = cluster.dialer()
    asked: list[str] = []

    class Foreign:
        async def call(self, request: object) -> object:
            asked.append("foreign")
            raise Unsupported("broker foreign:1 does not know ClusterStatus: upgrade the broker")

    class Dialer:
        def dial(self, address: str) -> Any:
            return Foreign() if address.startswith("foreign") else dialer.dial(address)

    for seed in range(12):
        found = Cluster(("foreign:1", "fake:9000"), cast(Any, Dialer()), environment(seed), QUICK)
        assert (await found.connect()).brokers
    assert asked
    with pytest.raises(Unsupported, match="does not know ClusterStatus"):
        await Cluster(("foreign:1", "foreign:2"), cast(Any, Dialer()), environment(), QUICK).connect()
    with pytest.raises(Unavailable, match=r"foreign:1: .* does not know"):  # the other one may return, and know it
        await Cluster(("foreign:1", "fake:1"), cast(Any, Dialer()), environment(), QUICK).connect()


async def test_a_broker_that_did_not_answer_gets_little_time_and_one_failure_of_many_streams_counts_once() -> None:
    cluster = Cluster(("a:1", "b:1"), FakeCluster().dialer(), environment(), QUICK)
    times_s = [cluster.answer_timeout_s("b:1")]
    for _ in range(7):
        await asyncio.sleep(0.001)
        with contextlib.suppress(TimeoutError), cluster.reaching("b:1"):
            raise TimeoutError
        times_s.append(cluster.answer_timeout_s("b:1"))
    assert times_s == [10.0, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    assert cluster.answer_timeout_s("a:1") == 10.0
    cluster = Cluster(("a:1", "b:1"), FakeCluster().dialer(), environment(), QUICK)

    async def stream() -> None:
        with contextlib.suppress(Unavailable), cluster.reaching("b:1"):
            await asyncio.sleep(0.01)
            raise Unavailable("frozen")

    await asyncio.gather(*(stream() for _ in range(10)))
    assert cluster.answer_timeout_s("b:1") == 0.5


async def test_a_refresh_that_fails_when_nobody_waits_any_more_is_no_complaint() -> None:
    closing = asyncio.Event()

    async def describe(*_: Any) -> TopicDescription:
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
    (look,) = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.wait({look})
    del view, waiting, look
    gc.collect()
    assert not complaints


def failing(errors: dict[str, Exception]) -> Any:
    """Return a dialer to brokers that answer every call with an error; addresses without an error never answer."""

    async def call(address: str) -> None:
        if address in errors:
            raise errors[address]
        await asyncio.Event().wait()

    return SimpleNamespace(dial=lambda address: SimpleNamespace(call=lambda _: call(address)))


async def connect(errors: dict[str, Exception], config: ClientConfig) -> tuple[str, float]:
    """Return the error of a failed connect, and the seconds that it took."""
    cluster = Cluster(("a:1", "b:1"), failing(errors), environment(), config)
    await asyncio.sleep(9)  # virtual time begins at 0
    began = asyncio.get_running_loop().time()
    with pytest.raises(Unavailable) as failure:
        await cluster.connect()
    return str(failure.value), asyncio.get_running_loop().time() - began


async def test_where_nobody_listens_connecting_soon_ends_and_says_once_what_to_do() -> None:
    refused = ConnectionRefused("broker a:1 is unreachable (connection refused): check that it runs there, and retry")
    config = ClientConfig(connect_timeout_s=5, connect_refused_s=0.1, backoff_s_max=0.05)
    text, took_s = await connect({"a:1": refused, "b:1": refused}, config)
    assert took_s < 1
    before, after = text.split(", tried ")
    assert before.startswith("could not connect to the cluster within 0.")
    tried, remedy = after.split(". ")
    assert sorted(tried.split("; ")) == ["a:1: connection refused", "b:1: connection refused"]
    assert remedy == "Check that brokers run there"


@pytest.mark.parametrize("other", [None, Unavailable("no broker leads the cluster at the moment: retry")])
async def test_while_one_address_may_yet_answer_connecting_goes_on(other: Exception | None) -> None:
    config = ClientConfig(connect_timeout_s=0.5, connect_refused_s=0.05, rpc_timeout_s=0.1, backoff_s_max=0.05)
    errors: dict[str, Exception] = {"a:1": ConnectionRefused("broker a:1 is unreachable")}
    text, took_s = await connect(errors | ({"b:1": other} if other else {}), config)
    assert took_s > 0.4
    assert text.count("heck that") == 1
    assert ("b:1: no broker leads" if other else "b:1: no answer within 0.1 s") in text


async def test_a_broker_that_begins_to_listen_meanwhile_is_found() -> None:
    errors: dict[str, Exception] = {"a:1": ConnectionRefused("nobody"), "b:1": ConnectionRefused("nobody")}
    dialer = failing(errors)
    status = SimpleNamespace(brokers=())
    cluster = Cluster(("a:1", "b:1"), dialer, environment(), ClientConfig(connect_refused_s=2.0, backoff_s_max=0.05))
    connecting = asyncio.create_task(cluster.connect())
    await asyncio.sleep(0.2)

    async def answer(_: object) -> Any:
        return status

    dialer.dial = lambda address: SimpleNamespace(call=answer)
    assert await connecting is status


async def test_a_broker_that_begins_to_listen_late_is_found_within_a_fifth_of_a_second() -> None:
    asked_at: list[float] = []

    def refuse(_: str) -> Any:
        asked_at.append(asyncio.get_running_loop().time())
        raise ConnectionRefused("the broker does not listen yet")

    config = ClientConfig(connect_timeout_s=60, connect_refused_s=60, backoff_s_max=30)
    cluster = Cluster(("a:1",), cast(Any, SimpleNamespace(dial=refuse)), environment(), config)
    with pytest.raises(Unavailable):
        await cluster.connect()
    assert asked_at[-1] - asked_at[0] > 59
    assert max(then - now for now, then in pairwise(asked_at)) <= 0.2


# --- descriptions in pages
def told(*sealed: int, open_at: tuple[int, ...] = (), revision: int = 1, more: int | None = None) -> TopicDescription:
    ids = {*sealed, *open_at}
    return TopicDescription(
        topic=replace(make_topic(), next_segment=10),
        segments=tuple(replace(make_segment(5 if n in sealed else None), id=n) for n in sorted(ids)),
        addresses={"b-0": "a:1"},
        revision=revision,
        more_above=more,
    )


class Pages:
    """A dialer whose brokers give these answers in turn, at any address."""

    def __init__(self, *answers: TopicDescription) -> None:
        self.answers = list(answers)
        self.asked: list[SegmentSelection] = []
        self.uids: list[int] = []

    def dial(self, _: str) -> "Pages":
        return self

    async def call(self, request: DescribeTopic) -> TopicDescription:
        self.asked.append(request.which)
        self.uids.append(request.topic_uid)
        return self.answers.pop(0)


async def described(pages: Pages, which: SegmentSelection = ALL) -> list[tuple[int, bool]]:
    cluster = Cluster(("a:1", "b:1"), cast(Any, pages), environment(), QUICK)
    found = await cluster.describe(NAME, which)
    assert found.more_above is None
    return [(s.id, s.is_open) for s in found.segments]


async def test_pages_are_joined_as_of_the_first_whatever_happens_meanwhile() -> None:
    """Segment 8 is sealed between the pages, 10 and 11 are created, and 3 is pruned."""
    pages = Pages(told(0, 1, open_at=(8, 9), more=1), told(2, 4, revision=2, more=4), told(5, 8, 10, revision=7))
    every = [(n, False) for n in (0, 1, 2, 4, 5)] + [(8, True), (9, True)]
    assert await described(pages) == every
    assert pages.asked == [
        ALL,
        SegmentSelection(open=False, sealed_above=1),
        SegmentSelection(open=False, sealed_above=4),
    ]


async def test_pages_are_asked_for_of_the_topic_that_the_first_one_told_of() -> None:
    """A topic recreated between the pages would add its segments to the earlier topic."""
    first, second = told(0, open_at=(3,), more=0), told(1, 2)
    pages = Pages(first, second)
    assert len(await described(pages)) == 4
    assert pages.uids == [0, first.topic.uid]
    again = replace(second, topic=replace(second.topic, uid=first.topic.uid + 1))
    with pytest.raises(NotFound, match="created again"):
        await described(Pages(first, again))


async def test_a_view_asks_for_the_topic_that_it_knows_and_shares_no_answer_that_lacks_what_is_wanted() -> None:
    first = told(open_at=(9,))
    pages = Pages(first, replace(first, topic=replace(first.topic, uid=first.topic.uid + 1)))
    view = TopicView(Cluster(("a:1",), cast(Any, pages), environment(), QUICK), NAME, lambda _: None)
    assert await view.description(True) is first
    with pytest.raises(NotFound, match="created again"):
        await view.description(True)
    assert pages.uids == [0, first.topic.uid]
    assert await view.description(False) is first
    pages = Pages(told(open_at=(9,)), told(1, open_at=(9,)))
    cluster = Cluster(("a:1",), cast(Any, pages), environment(), QUICK)
    view = TopicView(cluster, NAME, lambda _: None)
    one, other = await asyncio.gather(view.description(True), view.description(True, (1,)))
    assert [s.id for s in one.segments] == [9]
    assert [s.id for s in other.segments] == [1, 9]
    assert await view.description(False, (1,)) is other


async def test_a_page_of_a_broker_that_lags_is_asked_for_again_and_many_ids_in_several_calls() -> None:
    """It would lack segments that were sealed later."""
    pages = Pages(told(0, open_at=(3,), revision=5, more=0), told(revision=4), told(1, 2, revision=5))
    assert await described(pages) == [(0, False), (1, False), (2, False), (3, True)]
    ids = tuple(range(IDS_MAX + 1))
    pages = Pages(told(0), told(IDS_MAX))
    assert await described(pages, SegmentSelection(ids=ids)) == [(0, False)], (
        "the answer lacks ids that do not exist yet"
    )
    assert [len(which.ids) for which in pages.asked] == [IDS_MAX, 1]


async def test_a_segment_is_not_taken_for_pruned_nor_the_schema_taken_back_because_a_broker_lags() -> None:
    new = told(open_at=(9,))
    old = replace(told(open_at=(8,)), topic=replace(new.topic, next_segment=9))
    view = TopicView(Cluster(("a:1",), cast(Any, Pages(new, old, old)), environment(), QUICK), NAME, lambda _: None)
    assert await view.description(True) is new
    assert await view.description(True, (9,)) is new, "what is known is newer"
    with pytest.raises(Unavailable, match="segment 8 of shop/orders is not known yet"):
        await view.description(False, (8,))
    old = told(open_at=(9,), revision=4)
    new = replace(old, topic=replace(old.topic, schema=b"columns"), revision=5)
    unnumbered = replace(new, revision=0)
    view = TopicView(
        Cluster(("a:1",), cast(Any, Pages(new, old, unnumbered)), environment(), QUICK), NAME, lambda _: None
    )
    assert await view.description(True) is new
    assert await view.description(True) is new, "what is known is newer"
    assert await view.description(True) is unnumbered
