"""Lock-free appends to the buffer during cuts: no record is lost or repeated, and each future is its record's."""

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from seaweedmq.client.config import ClientConfig
from seaweedmq.client.publish.batches.batch import Batch
from seaweedmq.client.publish.buffer import RecordBuffer
from seaweedmq.client.publish.futures import RecordFuture
from seaweedmq.client.publish.unreported_errors import UnreportedErrors
from seaweedmq.client.publish.unsettled_work import UnsettledWork

Found = list[tuple[bytes | None, bytes]]


class Loop:
    """The publisher's use of the buffer, without an event loop: encodes at once, and acknowledges on request."""

    def __init__(self) -> None:
        self.buffer = RecordBuffer(
            unsettled=UnsettledWork(),
            failures=UnreportedErrors(),
            post=lambda _: None,
            clock=lambda: 0.0,
            wall_us=lambda: 1,
            new_upload_id=lambda: "0" * 32,
            config=ClientConfig(batch_bytes=5_000),
        )
        self.records: Found = []
        self._encoded: list[tuple[Batch, int]] = []

    def encode(self) -> None:
        """Encode all queued batches."""
        while self.buffer.work:
            batch = self.buffer.work.popleft()
            assert isinstance(batch, Batch)
            (rows,) = batch.rows(1)
            self._encoded.append((batch, len(self.records)))
            columns = {name: rows.columns.column(name).to_pylist() for name in rows.columns.schema.names}
            values = columns["_value"]
            self.records += zip(columns.get("_key", [None] * len(values)), values, strict=True)
            self.buffer.room.encoded()

    def cut(self) -> None:
        self.buffer.cut()
        self.encode()

    def settle(self) -> None:
        for batch, base_offset in self._encoded:
            batch.promise.acked(range(batch.promise.count), 0, base_offset)


class Hooked(list[Any]):
    """A list that runs a hook in the middle of an append, before or after the value is there."""

    before: Callable[[], None] | None = None
    after: Callable[[], None] | None = None

    def append(self, value: Any) -> None:
        hook, self.before = self.before, None
        if hook is not None:
            hook()
        super().append(value)
        hook, self.after = self.after, None
        if hook is not None:
            hook()


def hooked(loop: Loop) -> Hooked:
    """Watch the appends of values to the open batch."""
    batch = loop.buffer.open_batch
    batch.values = made = Hooked(batch.values)
    return made


def check(loop: Loop, sent: list[tuple[bytes | None, bytes, RecordFuture]]) -> None:
    loop.cut()
    loop.settle()
    assert sorted(loop.records, key=repr) == sorted([(key, value) for key, value, _ in sent], key=repr)
    for key, value, future in sent:
        assert loop.records[future.result(0).offset or 0] == (key, value)
    assert loop.buffer.room.used_bytes == 0


@pytest.fixture
def hasty_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_record_that_meets_a_cut_is_in_one_batch(moment: str, keyed: bool) -> None:
    loop = Loop()
    sent = []
    for number in range(6):
        key, value = b"k%d" % number if keyed else None, b"v%d" % number
        if number % 3 == 2:
            setattr(hooked(loop), moment, loop.cut)
        sent.append((key, value, loop.buffer.send(value, key=key)))
    check(loop, sent)
    assert loop.records == [(key, value) for key, value, _ in sent]


def test_an_interrupt_between_a_key_and_its_value_moves_no_key_to_another_record() -> None:
    loop = Loop()
    sent = [(b"k0", b"v0", loop.buffer.send(b"v0", key=b"k0"))]

    def interrupt() -> None:
        raise KeyboardInterrupt

    hooked(loop).before = interrupt
    with pytest.raises(KeyboardInterrupt):
        loop.buffer.send(b"interrupted", key=b"its key")
    sent.append((b"k1", b"v1", loop.buffer.send(b"v1", key=b"k1")))
    check(loop, sent)


def test_a_second_thread_that_comes_in_the_middle_of_an_append_leaves_the_place_to_it() -> None:
    loop = Loop()
    sent = [(b"k0", b"v0", loop.buffer.send(b"v0", key=b"k0"))]

    def send() -> None:
        sent.append((b"k1", b"v1", loop.buffer.send(b"v1", key=b"k1")))

    def come_between() -> None:
        second = threading.Thread(target=send)
        second.start()
        second.join()

    hooked(loop).before = come_between
    sent.append((b"k2", b"v2", loop.buffer.send(b"v2", key=b"k2")))
    check(loop, sent)


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("extras", [{}, {"headers": {"signal": b"15"}}])
def test_a_signal_handler_that_sends_in_the_middle_of_a_send_mixes_nothing_up(moment: str, extras: Any) -> None:
    loop = Loop()
    sent = [(b"k0", b"v0", loop.buffer.send(b"v0", key=b"k0"))]
    setattr(hooked(loop), moment, lambda: sent.append((b"k1", b"v1", loop.buffer.send(b"v1", key=b"k1", **extras))))
    sent.append((b"k2", b"v2", loop.buffer.send(b"v2", key=b"k2")))
    sent.append((b"k3", b"v3", loop.buffer.send(b"v3", key=b"k3")))
    check(loop, sent)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.usefixtures("hasty_threads")
def test_threads_send_while_another_cuts_all_the_time(threads: int) -> None:
    loop = Loop()
    sent: list[list[tuple[bytes | None, bytes, RecordFuture]]] = [[] for _ in range(threads)]

    def send(thread: int) -> None:
        for number in range(12_000):
            key = None if number % 7 == 0 else b"%d-%d" % (thread, number)
            value = b"%d/%d" % (thread, number)
            sent[thread].append((key, value, loop.buffer.send(value, key=key, headers={} if number == 500 else None)))

    senders = [threading.Thread(target=send, args=(thread,)) for thread in range(threads)]
    for sender in senders:
        sender.start()
    while any(sender.is_alive() for sender in senders):
        loop.cut()
    check(loop, [each for own in sent for each in own])
    for thread, own in enumerate(sent):
        prefix = b"%d/" % thread
        assert [value for _, value in loop.records if value.startswith(prefix)] == [value for _, value, _ in own]
