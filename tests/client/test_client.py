"""What a client does about what it opened."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from seaweedmq import aio
from seaweedmq.client.client import Client, Opening
from seaweedmq.client.group.dead_letter import DeadLetters
from seaweedmq.errors import Closed, Unavailable
from seaweedmq.model.calls import DescribeTopic
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeBroker, FakeCluster

TOPIC = "shop/orders"


@pytest.mark.parametrize(
    "open_one",
    [
        lambda client: client.publisher(TOPIC),
        lambda client: client.subscriber(TOPIC),
        lambda client: client.subscriber(TOPIC, group="billing"),
    ],
)
async def test_what_opens_while_the_client_is_closed_is_closed_too(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, open_one: Callable[[Client], Opening[Any]]
) -> None:
    asked, told = asyncio.Event(), asyncio.Event()
    answer = FakeBroker.call

    async def slow(broker: FakeBroker, request: Any) -> Any:
        if isinstance(request, DescribeTopic):
            asked.set()
            await told.wait()
        return await answer(broker, request)

    here = asyncio.all_tasks()
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
        await client.admin.create_topic(TOPIC)
        monkeypatch.setattr(FakeBroker, "call", slow)
        opening = asyncio.ensure_future(open_one(client).__aenter__())
        await asked.wait()
    told.set()
    with pytest.raises(Closed):
        await opening
    assert asyncio.all_tasks() == here


async def test_closing_the_client_does_not_repeat_what_closing_a_member_said(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(letters: DeadLetters) -> None:
        raise Unavailable("a letter was not kept")

    monkeypatch.setattr(DeadLetters, "close", broken)
    async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
        await client.admin.create_topic(TOPIC)
        subscriber = await client.subscriber(TOPIC, group="billing", max_deliveries=3)
        with pytest.raises(Unavailable, match="a letter"):
            await subscriber.close()
