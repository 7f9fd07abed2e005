"""The synchronous API under threads, interrupts and forks."""

import asyncio
import gc
import inspect
import os
import signal
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial

import pyarrow as pa
import pytest

import seaweedmq
from seaweedmq import aio
from seaweedmq.client.publish.futures import RecordFuture
from seaweedmq.errors import AlreadyExists, Closed, DeadlineExceeded, InvalidArgument, NotFound
from tests.client.fake_broker import FakeBroker, FakeCluster
from tests.support.tracebacks import depth

TOPIC = "shop/orders"


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
        futures: list[list[RecordFuture]] = [[] for _ in range(4)]

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
    with client.publisher(TOPIC, buffer_bytes_max=100_000, batch_bytes=10_000) as publisher:
        publisher.send(b"first").result(10)  # the first send of a process takes longer than the sends below wait
        cluster.holds_acks = True

        def fill() -> None:
            while True:
                publisher.send(bytes(1_000), timeout=0.1)

        with pytest.raises(DeadlineExceeded, match=r"no room to send within 0\.1 s"):
            fill()
        cluster.release_acks_from_a_thread()
        assert publisher.send(b"again", timeout=10).result(10).segment == 0


def test_close_from_another_thread_ends_iteration(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    subscriber = client.subscriber(TOPIC)
    timer = threading.Timer(0.05, subscriber.close)
    timer.start()
    assert list(subscriber) == []
    timer.join()
    assert list(subscriber) == []


def values(subscriber: seaweedmq.Subscriber, how: str) -> list[bytes]:
    if how == "messages":
        return [message.value for message in subscriber]
    return [value for batch in subscriber.batches() for value in batch.column("_value").to_pylist()]


@pytest.mark.parametrize("how", ["messages", "batches"])
def test_an_interrupt_stops_iteration_and_loses_nothing(client: seaweedmq.Client, how: str) -> None:
    client.admin.create_topic(TOPIC)
    subscriber = client.subscriber(TOPIC, start="earliest", limit=2)
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        values(subscriber, how)
    timer.join()
    with client.publisher(TOPIC) as publisher:
        publisher.send(b"1")
        publisher.send(b"2")
    # Another call gets the records that the interrupted call waited for.
    assert values(client.subscriber(TOPIC, start="earliest", limit=2), how) == [b"1", b"2"]
    assert values(subscriber, how) == [b"1", b"2"]


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


def test_a_callback_may_send_but_neither_wait_nor_close(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    outcomes: Future[list[BaseException | None]] = Future()
    publisher = client.publisher(TOPIC)

    def callback(_: object) -> None:
        sent = publisher.send(b"from a callback")
        waits = [publisher.flush, sent.result, sent.exception, partial(sent.result, 10)]
        outcomes.set_result([_raised_by(attempt) for attempt in (*waits, client.close, partial(sent.result, 0))])

    publisher.send(b"x").add_done_callback(callback)
    errors = outcomes.result(10)
    assert [type(error) for error in errors] == [InvalidArgument] * 5 + [TimeoutError]
    assert "must not wait for the client" in str(errors[0])
    publisher.flush(10)
    assert publisher.send(b"y").result(10).offset == 2


def _raised_by(call: Callable[[], object]) -> BaseException | None:
    try:
        call()
    except BaseException as error:  # noqa: BLE001 - compared by its type
        return error
    return None


@pytest.mark.parametrize("error", [SystemExit("no input"), KeyboardInterrupt(), StopIteration(), ValueError()])
@pytest.mark.parametrize("is_table", [False, True])
def test_what_a_callback_raises_ends_nothing(
    client: seaweedmq.Client, error: BaseException, is_table: bool, caplog: pytest.LogCaptureFixture
) -> None:
    client.admin.create_topic(TOPIC)
    called = threading.Event()

    def callback(_: object) -> None:
        called.set()
        raise error

    with client.publisher(TOPIC, linger_s=0.05) as publisher:
        sent: Future[object] = publisher.send_table(pa.table({"_value": [b"a"]})) if is_table else publisher.send(b"a")
        sent.add_done_callback(callback)
        assert called.wait(10)
        publisher.send(b"b").result(10)
    assert client.admin.describe_topic(TOPIC).topic.name.name == "orders"
    assert [type(record.exc_info[1]) for record in caplog.records if record.exc_info] == [type(error)]


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


def test_refused_records_are_not_kept_alive_by_the_errors_that_refuse_them(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC, schema=pa.schema([("number", pa.int64())]))
    refused: list[InvalidArgument] = []
    with client.publisher(TOPIC) as publisher:
        tracemalloc.start()
        try:
            for _ in range(200):
                try:
                    publisher.send(bytes(100_000))
                except InvalidArgument as error:
                    refused.append(error)
            depths = {depth(error) for error in refused}
            refused.clear()
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert len(depths) == 1
    assert kept < 1_000_000


def test_records_that_failed_are_not_kept_alive_by_their_futures(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    with client.publisher(TOPIC) as publisher:
        publisher.send(b"x").result(10)
        client.admin.delete_topic(TOPIC)
        tracemalloc.start()
        try:
            sent = [publisher.send(bytes(100_000)) for _ in range(200)]
            wait(sent, timeout=10)
            for _ in range(3):
                raised = [_raised_by(partial(f.result, 10)) for f in sent]
                assert {(type(error), depth(error)) for error in raised if error} == {(NotFound, 2)}
            raised.clear()
            gc.collect()
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert kept < 4_000_000


def test_a_wrong_call_names_what_was_called(client: seaweedmq.Client) -> None:
    client.admin.create_topic(TOPIC)
    with client.publisher(TOPIC) as publisher:
        with pytest.raises(TypeError, match=r"^Publisher\.send\(\) takes 2 positional arguments but 3 were given$"):
            publisher.send(b"value", b"key")  # type: ignore[call-arg]
        with pytest.raises(TypeError, match=r"^Publisher\.send\(\) got an unexpected keyword argument 'ky'$"):
            publisher.send(b"value", ky=b"key")  # type: ignore[call-arg]
        assert inspect.signature(publisher.send) == inspect.signature(partial(seaweedmq.Publisher.send, publisher))
    for options in ({"strat": "earliest"}, {"group": "g", "strat": "earliest"}):
        with pytest.raises(TypeError, match=r"^Client\.subscriber\(\) got an unexpected keyword argument 'strat'$"):
            client.subscriber(TOPIC, **options)  # type: ignore[call-overload]


def test_closing_repeats_no_failure_that_was_told(client: seaweedmq.Client, cluster: FakeCluster) -> None:
    cluster.frame_bytes_max = 100_000
    client.admin.create_topic(TOPIC)
    for ask in (lambda sent: _raised_by(partial(sent.result, 10)), lambda sent: sent.exception(10)):
        publisher = client.publisher(TOPIC)
        publisher.send(b"x").result(10)
        assert isinstance(ask(publisher.send(b"", key=bytes(200_000))), InvalidArgument)
        publisher.close()
    publisher = client.publisher(TOPIC)
    publisher.send(b"", key=bytes(200_000))
    with pytest.raises(InvalidArgument, match="over the limit"):
        publisher.flush()
    publisher.flush()
    publisher.close()
    publisher = client.publisher(TOPIC)
    publisher.send(b"x").result(10)
    told, untold = publisher.send(b"", key=bytes(200_000)), publisher.send(b"", key=bytes(200_000))
    assert told.exception(10) is not None
    with pytest.raises(InvalidArgument, match="over the limit"):
        publisher.close()
    publisher.close()
    assert untold.done()


def test_a_thread_that_waits_while_another_closes_the_client_is_told(
    client: seaweedmq.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Event()

    async def never(broker: FakeBroker, request: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(FakeBroker, "call", never)
    with ThreadPoolExecutor(1) as waiting:
        status = waiting.submit(client.admin.cluster_status)
        assert asked.wait(10)
        client.close()
        with pytest.raises(Closed):
            status.result(10)


def test_iteration_goes_on_after_an_unforeseen_error(client: seaweedmq.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    client.admin.create_topic(TOPIC)
    with client.publisher(TOPIC) as publisher:
        publisher.send(b"1")
    subscriber = client.subscriber(TOPIC, start="earliest", stop_at="latest")

    async def broken(core: aio.Subscriber) -> bool:
        raise AssertionError("a bug")

    with monkeypatch.context() as patched:
        patched.setattr(aio.Subscriber, "fetch", broken)
        with pytest.raises(AssertionError, match="a bug"):
            list(subscriber)
    assert [m.value for m in subscriber] == [b"1"]
