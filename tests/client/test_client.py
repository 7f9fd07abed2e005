"""A client closes what it opened, also when ``close()`` is cancelled."""

import asyncio
import os
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, cast

import pyarrow as pa
import pytest

from seaweedmq import aio
from seaweedmq.client.client import Client, Opening
from seaweedmq.client.group.dead_letter import DeadLetters
from seaweedmq.client.group.subscriber import GroupSubscriber
from seaweedmq.client.subscribe.subscriber import Subscriber
from seaweedmq.errors import Closed, DeadlineExceeded, InvalidArgument, Unavailable
from seaweedmq.model.messages.calls import DescribeTopic
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


async def test_a_close_that_is_cancelled_goes_on_and_the_next_awaits_it(cluster: FakeCluster) -> None:
    """``asyncio.timeout(5)`` around ``close()``, or a second Ctrl-C."""
    here = asyncio.all_tasks()
    client = await aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK)
    await client.admin.create_topic(TOPIC)
    publisher = await client.publisher(TOPIC, linger_s=3)
    await (await publisher.send(b"first"))
    waiting = await publisher.send(b"waits for its linger")
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    assert closing.cancelled()
    await client.close()
    assert waiting.done()
    assert asyncio.all_tasks() == here
    await client.close()


@pytest.mark.parametrize(
    ("first", "second"), [("client", "client"), ("publisher", "client"), ("publisher", "publisher")]
)
async def test_lost_records_are_reported_by_the_next_close_if_the_first_was_cancelled(
    cluster: FakeCluster, first: str, second: str
) -> None:
    """``asyncio.wait_for(client.close(), 5)`` that times out, and ``client.close()`` in a finally."""
    config = replace(QUICK, close_timeout_s=0.02)
    client = await aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=config)
    await client.admin.create_topic(TOPIC)
    publisher = await client.publisher(TOPIC)
    cluster.holds_acks = True
    await publisher.send(b"never acknowledged")
    closed = {"client": client, "publisher": publisher}
    call = asyncio.ensure_future(closed[first].close())
    await asyncio.sleep(0)
    call.cancel()
    await asyncio.wait({call})
    assert call.cancelled()
    await asyncio.wait({task for task in asyncio.all_tasks() if task.get_name().startswith("close ")})
    assert publisher.is_closed
    with pytest.raises(DeadlineExceeded, match="1 batches are not acknowledged"):
        await closed[second].close()
    await client.close()
    await publisher.close()


async def test_a_client_in_another_event_loop_is_rejected_at_once(client: Client) -> None:
    """A second ``asyncio.run``, or a fixture of pytest-asyncio with another ``loop_scope`` than its test."""
    await client.admin.create_topic(TOPIC)
    publisher = await client.publisher(TOPIC)
    subscribers: list[Subscriber | GroupSubscriber] = [
        await client.subscriber(TOPIC),
        await client.subscriber(TOPIC, group="billing"),
    ]
    uses: list[Callable[[], Awaitable[object]]] = [
        client.admin.list_topics,
        client.close,
        publisher.flush,
        publisher.close,
        lambda: client.publisher(TOPIC).__aenter__(),
        lambda: publisher.send(b"value"),
        lambda: publisher.send_table(pa.table({"_value": [b"value"]})),
        lambda: cast(GroupSubscriber, subscribers[1]).handle(print),
    ]
    for subscriber in subscribers:
        uses += [subscriber.close, partial(anext, aiter(subscriber)), partial(anext, subscriber.batches())]

    async def elsewhere() -> None:
        for use in uses:
            with pytest.raises(InvalidArgument, match="belongs to the event loop in which it was connected"):
                await use()

    with ThreadPoolExecutor() as threads:
        threads.submit(asyncio.run, elsewhere()).result()
    await (await publisher.send(b"value"))


def test_a_client_that_a_child_process_inherits_says_so_there(cluster: FakeCluster) -> None:
    loop = asyncio.new_event_loop()
    opening = aio.connect(
        "fake:9000", dialer=cluster.dialer(), env=environment(boot_s=time.monotonic), config=QUICK
    ).__aenter__()
    client = loop.run_until_complete(opening)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(client.admin.list_topics())
        except Closed as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    assert os.read(reading, 1_000).decode().startswith(f"this client was made by process {os.getpid()} and cannot be")
    os.close(reading)
    loop.run_until_complete(client.close())
    loop.close()


@pytest.mark.parametrize("group", [None, "billing"])
async def test_closing_a_subscriber_can_be_cancelled_and_awaited_again(client: Client, group: str | None) -> None:
    await client.admin.create_topic(TOPIC)
    here = asyncio.all_tasks()
    subscriber = await client.subscriber(TOPIC, group=group)
    await asyncio.sleep(0.05)
    closing = asyncio.create_task(subscriber.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait({closing})
    await subscriber.close()
    left = {task.get_name() for task in asyncio.all_tasks() - here}
    assert not [name for name in left if TOPIC in name or "billing" in name]


async def test_a_client_that_is_dropped_without_closing_says_what_it_loses(cluster: FakeCluster) -> None:
    client = await aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK)
    await client.admin.create_topic(TOPIC)
    publisher = await client.publisher(TOPIC, linger_s=3)
    await (await publisher.send(b"first"))
    for number in range(10):
        await publisher.send(b"%d" % number)
    subscriber = await client.subscriber(TOPIC)
    with pytest.warns(ResourceWarning) as warned:
        del client
    (warning,) = warned
    assert str(warning.message) == (
        f"client of fake:9000 was not closed, with its publisher of {TOPIC} (10 records not acknowledged), with its "
        f"subscriber of {TOPIC}: await its close(), or use async with"
    )
    await publisher.close()
    await subscriber.close()


async def test_a_client_that_was_closed_is_dropped_without_a_word(cluster: FakeCluster) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        async with aio.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
            await client.admin.create_topic(TOPIC)
            await client.publisher(TOPIC)
        del client
