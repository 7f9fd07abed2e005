"""The synchronous face, from threads, interrupts and forks."""

import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import wait

import pyarrow as pa
import pytest

import seaweedmq
from seaweedmq.client.delivery import Sent
from seaweedmq.errors import AlreadyExists, Closed, DeadlineExceeded, InvalidArgument
from tests.client.conftest import QUICK, environment
from tests.client.fake_broker import FakeCluster

TOPIC = "shop/orders"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster(brokers=2)


@pytest.fixture
def client(cluster: FakeCluster) -> Iterator[seaweedmq.Client]:
    with seaweedmq.connect("fake:9000", dialer=cluster.dialer(), env=environment(), config=QUICK) as client:
        yield client


def test_the_example_of_the_readme(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC, segments=4, replicas=1)
    with client.publisher(TOPIC) as publisher:
        receipt = publisher.send(b"value", key=b"key", headers={"h": b"v"})
        publisher.send_table(pa.table({"_value": [b"a", b"b"]}))
        publisher.flush(timeout=30)
        assert receipt.result() == seaweedmq.Receipt(receipt.result().segment, 0)
    with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        messages = list(subscriber)
    assert sorted(m.value for m in messages) == [b"a", b"b", b"value"]
    message = next(m for m in messages if m.key)
    message.ack()
    assert (message.topic, message.key, message.headers) == (TOPIC, b"key", {"h": b"v"})
    with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
        assert sum(batch.num_rows for batch in subscriber.batches()) == 3


def test_administration(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    with pytest.raises(AlreadyExists):
        client.admin.create_topic(TOPIC)
    assert client.admin.alter_topic(TOPIC, retention=60).topic.retention_s == 60
    assert [str(t.name) for t in client.admin.list_topics()] == [TOPIC]
    assert len(client.admin.describe_topic(TOPIC).segments) == 1
    assert client.admin.topic_stats(TOPIC)[0].high_watermark == 0
    assert client.admin.cluster_status().leader == "b-0"
    client.admin.delete_topic(TOPIC)
    assert client.admin.list_topics() == ()
    with pytest.raises(InvalidArgument, match="durability 'maybe' is unknown"):
        client.admin.create_topic(TOPIC, durability="maybe")


def test_many_threads_send_through_one_publisher(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    client.admin.create_topic(TOPIC, segments=2)
    with client.publisher(TOPIC) as publisher:
        futures: list[list[Sent]] = [[] for _ in range(4)]

        def send(number: int) -> None:
            futures[number] = [publisher.send(b"%d" % i, key=b"%d" % number) for i in range(5_000)]

        threads = [threading.Thread(target=send, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        everything = [f for part in futures for f in part]
        done, pending = wait(everything, timeout=30)
        assert (len(done), len(pending)) == (20_000, 0)
    assert len({f.result() for f in everything}) == 20_000
    for part in futures:
        offsets = [f.result().offset or 0 for f in part]
        assert offsets == sorted(offsets)


def test_send_blocks_at_the_bound_and_gives_up_in_time(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    client.admin.create_topic(TOPIC)
    cluster.holds_acks = True
    with client.publisher(TOPIC, buffer_bytes_max=100_000, batch_bytes=10_000) as publisher:

        def fill() -> None:
            while True:
                publisher.send(bytes(1_000), timeout=0.1)

        with pytest.raises(DeadlineExceeded, match=r"no room to send within 0\.1 s"):
            fill()
        client._background.loop.call_soon_threadsafe(cluster.release_acks)
        assert publisher.send(b"again", timeout=10).result(10).segment == 0


def test_close_from_another_thread_ends_iteration(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    subscriber = client.subscriber(TOPIC)
    timer = threading.Timer(0.05, subscriber.close)
    timer.start()
    assert list(subscriber) == []
    timer.join()
    assert list(subscriber) == []


def test_an_interrupt_stops_iteration_and_loses_nothing(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    subscriber = client.subscriber(TOPIC, start="earliest", limit=2)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        list(subscriber)
    timer.join()
    with client.publisher(TOPIC) as publisher:
        publisher.send(b"1")
        publisher.send(b"2")
    assert [m.value for m in subscriber] == [b"1", b"2"]


def test_everything_says_closed_after_close(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    publisher = client.publisher(TOPIC)
    subscriber = client.subscriber(TOPIC)
    sent = publisher.send(b"x")
    client.close()
    client.close()
    assert sent.done()
    assert list(subscriber) == []
    publisher.close()
    for use in (
        lambda: publisher.send(b"y"),
        publisher.flush,
        client.admin.list_topics,
        lambda: client.publisher(TOPIC),
        lambda: client.subscriber(TOPIC),
    ):
        with pytest.raises(Closed):
            use()


def test_a_callback_may_send_but_not_wait(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    outcomes: list[object] = []
    finished = threading.Event()
    with client.publisher(TOPIC) as publisher:

        def callback(_: object) -> None:
            outcomes.append(publisher.send(b"from a callback"))
            try:
                publisher.flush()
            except InvalidArgument as error:
                outcomes.append(error)
            finished.set()

        publisher.send(b"x").add_done_callback(callback)
        assert finished.wait(10)
        publisher.flush(10)
    assert "may not wait for the client" in str(outcomes[1])


def test_a_child_process_can_not_use_the_client(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    publisher = client.publisher(TOPIC)
    publisher.send(b"before").result(10)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for use in (lambda: publisher.send(b"x"), publisher.flush, client.admin.list_topics):
            try:
                use()
            except Closed as error:
                said.append("child" in str(error))
        client.close()
        os.write(write_end, repr(said).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read_end, 100) == b"[True, True, True]"
    os.close(read_end)
    os.close(write_end)
    assert publisher.send(b"after").result(10).offset == 1
