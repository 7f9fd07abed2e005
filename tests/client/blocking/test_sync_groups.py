"""Groups from threads: handlers, acknowledgements from any thread, and segments that move during iteration."""

import asyncio
import itertools
import os
import signal
import threading
import time
from collections import defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pytest

import seaweedmq
from seaweedmq.client.subscribe.messages import Message
from seaweedmq.errors import Closed, InvalidArgument
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster

TOPIC = "shop/orders"
GROUP = "billing"


def publish(client: seaweedmq.Client, count: int, segments: int = 2, keys: int = 20) -> None:
    client.admin.create_topic(TOPIC, segments=segments)
    with client.publisher(TOPIC) as publisher:
        for number in range(count):
            publisher.send(b"%d" % number, key=b"%d" % (number % keys))


def test_messages_and_batches(client: seaweedmq.Client) -> None:
    publish(client, 100)
    with client.subscriber(TOPIC, group=GROUP, start="earliest", limit=30) as subscriber:
        first = []
        for message in subscriber:
            message.ack()
            first.append(int(message.value))
        subscriber.commit()
    with client.subscriber(TOPIC, group=GROUP, start="earliest", stop_at="latest") as subscriber:
        rest = []
        for batch in subscriber.batches():
            subscriber.ack(batch)
            rest += [int(value) for value in batch.column("_value").to_pylist()]
    assert sorted(first + rest) == list(range(100))


def test_handlers_in_threads(client: seaweedmq.Client) -> None:
    publish(client, 300, keys=7)
    running: dict[bytes | None, int] = defaultdict(int)
    done: dict[bytes | None, list[int]] = defaultdict(list)
    threads: set[int] = set()
    together = threading.Barrier(3)
    calls = itertools.count()

    def handler(message: Message) -> None:
        threads.add(threading.get_ident())
        running[message.key] += 1
        assert running[message.key] == 1
        if next(calls) < 3:  # as many calls as may run concurrently meet here
            together.wait(timeout=10)
        running[message.key] -= 1
        if int(message.value) == 50 and message.deliveries == 1:
            raise ValueError("once")
        done[message.key].append(int(message.value))

    with client.subscriber(TOPIC, group=GROUP, start="earliest", stop_at="latest") as subscriber:
        subscriber.handle(handler, concurrency=3)
    assert sorted(number for numbers in done.values() for number in numbers) == list(range(300))
    assert all(numbers == sorted(numbers) for numbers in done.values())
    assert len(threads) == 3
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("is_coroutine", [False, True])
@pytest.mark.parametrize("error", [ValueError("odd"), StopIteration(), asyncio.CancelledError(), GeneratorExit()])
def test_whatever_a_handler_raises_its_record_comes_again(
    client: seaweedmq.Client, error: BaseException, is_coroutine: bool
) -> None:
    """``next()`` of an empty iterator raises StopIteration, which no asyncio future can carry."""
    publish(client, 3, segments=1)
    seen = []

    def function(message: Message) -> None:
        seen.append((message.value, message.deliveries))
        if message.value == b"1" and message.deliveries == 1:
            raise error

    async def coroutine(message: Message) -> None:
        function(message)

    with client.subscriber(TOPIC, group=GROUP, start="earliest", stop_at="latest", timeout=10) as subscriber:
        subscriber.handle(coroutine if is_coroutine else function)
    # At least once: a machine that stalls for a while also redelivers.
    assert {value for value, _ in seen} == {b"0", b"1", b"2"}
    assert [deliveries > 1 for value, deliveries in seen if value == b"1"][:2] == [False, True]


@pytest.mark.parametrize("is_coroutine", [False, True])
def test_an_exit_in_a_handler_ends_handling_and_nothing_else(client: seaweedmq.Client, is_coroutine: bool) -> None:
    """``handle`` raises ``sys.exit()``; the record is redelivered, and the client continues."""
    publish(client, 3, segments=1)
    other = client.publisher(TOPIC, linger_s=0.05)
    other.send(b"first").result(10)
    late = other.send(b"late")
    handled = []

    def function(message: Message) -> None:
        if not handled and message.value == b"1":
            handled.append((message.value, message.deliveries))
            raise SystemExit("no input")
        handled.append((message.value, message.deliveries))

    async def coroutine(message: Message) -> None:
        function(message)

    handler = coroutine if is_coroutine else function
    with client.subscriber(TOPIC, group=GROUP, start=1) as subscriber:
        with pytest.raises(SystemExit, match="no input"):
            subscriber.handle(handler)
        assert late.result(10).segment == 0
        assert handled == [(b"1", 1)]
    with client.subscriber(TOPIC, group=GROUP, stop_at="latest", timeout=10) as subscriber:
        subscriber.handle(handler)
    assert {value for value, _ in handled} == {b"1", b"2", b"first", b"late"}


def test_a_handler_may_close_it_and_others_are_waited_for(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    publish(client, 10, segments=1)
    finished = []
    with client.subscriber(TOPIC, group=GROUP, start="earliest") as subscriber:

        def handler(message: Message) -> None:
            if message.offset == 3:
                subscriber.close()
            time.sleep(0.02)
            finished.append(message.offset)

        subscriber.handle(handler, concurrency=2)
    committed = cluster.coordinator(GROUP, TOPIC).committed[0]
    assert committed == len(finished)
    assert finished.count(3) == 1


def test_closing_from_another_thread_waits_for_handlers(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    publish(client, 10, segments=1)
    inside = threading.Event()
    with client.subscriber(TOPIC, group=GROUP, start="earliest") as subscriber:

        def handler(message: Message) -> None:
            inside.set()
            time.sleep(0.1)

        closing = threading.Thread(target=lambda: (inside.wait(5), subscriber.close()))
        closing.start()
        subscriber.handle(handler)
        closing.join()
    assert cluster.coordinator(GROUP, TOPIC).committed == {0: 1}


def test_segments_move_under_iterating_and_acknowledging_threads(
    client: seaweedmq.Client, cluster: FakeCluster
) -> None:
    """Members come and go while threads receive, reject and acknowledge: no record is lost, no member hangs."""
    count = 10_000
    publish(client, count, segments=8, keys=500)
    seen: set[int] = set()
    refused: set[int] = set()

    def read(limit: int | None) -> None:
        with client.subscriber(
            TOPIC, group=GROUP, start="earliest", limit=limit, stop_at="latest", max_unacked=300
        ) as subscriber:
            for message in subscriber:
                number = int(message.value)
                if number % 97 == 0 and number not in refused:
                    refused.add(number)
                    message.nack()
                else:
                    seen.add(number)
                    acknowledging.submit(message.ack)

    with ThreadPoolExecutor(2) as acknowledging, ThreadPoolExecutor(5) as members:
        reading = []
        for limit in (None, 1_000, 700, 300, None):
            reading.append(members.submit(read, limit))
            time.sleep(0.02)
        for each in reading:
            each.result(60)
    assert seen == set(range(count))
    assert cluster.coordinator(GROUP, TOPIC).committed == {n: cluster.stored(TOPIC, n).end for n in range(8)}


def test_an_interrupt_of_handlers_gives_their_records_back(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    publish(client, 3, segments=1)
    handled = []

    def handler(message: Message) -> None:
        handled.append(message.offset)
        if len(handled) == 2:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    with client.subscriber(TOPIC, group=GROUP, start="earliest") as subscriber:
        with pytest.raises(KeyboardInterrupt):
            subscriber.handle(handler)
        subscriber.commit()
        assert cluster.coordinator(GROUP, TOPIC).committed == {0: 1}
    with client.subscriber(TOPIC, group=GROUP, start="earliest", limit=2) as subscriber:
        assert [(message.offset, message.deliveries) for message in subscriber] == [(1, 2), (2, 1)]


def test_auto_ack_while_threads_pause_and_resume_it(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    publish(client, 2_000, segments=2)
    with client.subscriber(TOPIC, group=GROUP, start="earliest", stop_at="latest", auto_ack=True) as subscriber:
        ended = threading.Event()

        def disturb() -> None:
            while not ended.wait(0.005):
                subscriber.pause()
                subscriber.resume()

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        got = [int(message.value) for message in subscriber]
        ended.set()
        disturbing.join()
    assert sorted(got) == list(range(2_000))
    assert cluster.coordinator(GROUP, TOPIC).committed == {n: cluster.stored(TOPIC, n).end for n in range(2)}


def test_a_handler_that_closes_the_client_ends_what_waits_for_it(cluster: FakeCluster) -> None:
    config = replace(QUICK, close_timeout_s=0.2)
    env = environment(boot_s=time.monotonic)
    closed: Future[None] = Future()
    with (
        ThreadPoolExecutor(1) as waiting,
        seaweedmq.connect("fake:9000", dialer=cluster.dialer(), env=env, config=config) as client,
    ):
        publish(client, 1)
        subscriber = client.subscriber(TOPIC, group=GROUP, start="earliest")

        def handler(message: Message) -> None:
            client.close()
            closed.set_result(None)

        handling = waiting.submit(subscriber.handle, handler)
        closed.result(10)
        with pytest.raises(Closed):
            handling.result(10)


def test_a_coroutine_handler_may_not_close_the_client(client: seaweedmq.Client) -> None:
    publish(client, 1)
    refused = []
    with client.subscriber(TOPIC, group=GROUP, start="earliest", stop_at="latest") as subscriber:

        async def handler(message: Message) -> None:
            with pytest.raises(InvalidArgument, match="must not wait for the client"):
                client.close()
            refused.append(message.value)

        subscriber.handle(handler)
    assert refused == [b"0"]
