"""The order of records per key while payloads are uploaded."""

from dataclasses import dataclass, field

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.uploads.order import REFERENCE_AGE_S_MAX, LatePromise, Ticket, UploadOrder
from seaweedmq.codec.frame import FLAG_KEY
from seaweedmq.codec.payload.batch import payload_schema
from seaweedmq.core.publish.outgoing_frame import FrameFailed, Positions
from seaweedmq.errors import DeadlineExceeded, SeaweedMQError

TIMEOUT_S = 30.0


@dataclass
class Promise:
    """A promise that keeps its outcomes."""

    deadline_s: float = 5.0
    outcomes: list[object] = field(default_factory=list)

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None:
        self.outcomes.append((list(positions), segment, base_offset))

    def failed(self, positions: Positions, error: SeaweedMQError) -> None:
        self.outcomes.append((list(positions), error))


def rows(*records: tuple[bytes | None, int], promise: Promise | None = None) -> Rows:
    """Rows of one batch, each with its key and a number as its value."""
    schema = payload_schema(FLAG_KEY, None)
    columns = [
        pa.array([key for key, _ in records], pa.binary()),
        pa.array([b"%d" % n for _, n in records], pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return Rows(batch, FLAG_KEY, 0, range(len(records)), promise or Promise())


def told(some: Rows) -> list[tuple[bytes | None, int]]:
    keys, values = (column.to_pylist() for column in some.columns.columns)
    return [(key, int(value)) for key, value in zip(keys, values, strict=True)]


def test_records_of_the_key_wait_and_others_pass() -> None:
    order = UploadOrder(TIMEOUT_S)
    upload = Ticket(b"a")
    order.begin(upload)
    passing = order.admit(rows((b"a", 1), (b"b", 2), (None, 3), (b"a", 4)))
    assert passing is not None
    assert told(passing) == [(b"b", 2), (None, 3)]
    assert order.admit(rows((b"a", 5))) is None
    assert order.keys == {b"a"}
    released = order.finish(upload, rows((b"a", 0)), 10.0)
    assert [told(each) for each in released if isinstance(each, Rows)] == [
        [(b"a", 0)],
        [(b"a", 1), (b"a", 4)],
        [(b"a", 5)],
    ]
    assert not order.keys
    later = rows((b"a", 6))
    assert order.admit(later) is later


def test_a_failed_upload_releases_what_waited() -> None:
    order = UploadOrder(TIMEOUT_S)
    upload = Ticket(b"a")
    order.begin(upload)
    assert order.admit(rows((b"a", 1))) is None
    (released,) = order.finish(upload, None, 10.0)
    assert isinstance(released, Rows)
    assert told(released) == [(b"a", 1)]


def test_uploads_without_a_key_hold_nothing() -> None:
    order = UploadOrder(TIMEOUT_S)
    upload = Ticket(None)
    order.begin(upload)
    keyless = rows((None, 1))
    assert order.admit(keyless) is keyless
    assert len(order.finish(upload, rows((None, 0)), 1.0)) == 1


def test_outcomes_of_rows_that_waited_reach_their_batch_with_time_from_the_release_on() -> None:
    order, promise = UploadOrder(TIMEOUT_S), Promise()
    upload = Ticket(b"a")
    order.begin(upload)
    order.admit(rows((b"x", 0), (b"a", 1), promise=promise))
    _, released = order.finish(upload, rows((b"a", 0)), 100.0)
    assert isinstance(released, Rows)
    assert isinstance(released.promise, LatePromise)
    assert released.promise.deadline_s == 100.0 + TIMEOUT_S
    released.promise.acked(released.positions, 3, 9)
    assert promise.outcomes == [([1], 3, 9)]
    assert promise.deadline_s == 5.0


def test_a_payload_that_waited_for_a_day_is_not_referred_to() -> None:
    order = UploadOrder(TIMEOUT_S)
    first, second = Ticket(b"a"), Ticket(b"a")
    order.begin(first)
    order.begin(second)
    assert order.admit(rows((b"a", 2))) is None
    assert order.finish(second, rows((b"a", 1)), 10.0) == []
    released = order.finish(first, rows((b"a", 0)), 11.0 + REFERENCE_AGE_S_MAX)
    assert [type(each) for each in released] == [Rows, FrameFailed, Rows]
    failure = released[1]
    assert isinstance(failure, FrameFailed)
    assert isinstance(failure.error, DeadlineExceeded)
    with pytest.raises(DeadlineExceeded, match=r"uploaded 24 hours before .* resend it"):
        raise failure.error


KEYS = st.sampled_from([b"a", b"b", b"c", None])


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("rows"), st.lists(KEYS, min_size=1, max_size=5)),
            st.tuples(st.just("begin"), KEYS),
            st.tuples(st.just("finish"), st.integers(0, 20)),
            st.tuples(st.just("fail"), st.integers(0, 20)),
        ),
        max_size=40,
    )
)
def test_each_key_keeps_the_order_of_the_calls(steps: list[tuple[str, object]]) -> None:
    """However records are sent, and however uploads end, each record leaves once, in order per key."""
    order = UploadOrder(TIMEOUT_S)
    sent: dict[bytes | None, list[int]] = {}
    left: dict[bytes | None, list[int]] = {}
    pending: list[tuple[Ticket, int]] = []
    number = 0

    def leave(some: Rows) -> None:
        for key, n in told(some):
            left.setdefault(key, []).append(n)

    def end(index: int, *, is_stored: bool) -> None:
        ticket, n = pending.pop(index % len(pending))
        if not is_stored:
            sent[ticket.key].remove(n)
        for each in order.finish(ticket, rows((ticket.key, n)) if is_stored else None, 1.0):
            assert isinstance(each, Rows)
            leave(each)

    for step, what in steps:
        if step == "rows":
            assert isinstance(what, list)
            records = [(key, number + i) for i, key in enumerate(what)]
            number += len(records)
            for key, n in records:
                sent.setdefault(key, []).append(n)
            passing = order.admit(rows(*records))
            if passing is not None:
                leave(passing)
        elif step == "begin":
            assert what is None or isinstance(what, bytes)
            sent.setdefault(what, []).append(number)
            pending.append((Ticket(what), number))
            order.begin(pending[-1][0])
            number += 1
        elif pending:
            assert isinstance(what, int)
            end(what, is_stored=step == "finish")
        assert order.keys == {ticket.key for ticket, _ in pending if ticket.key is not None}
    while pending:
        end(0, is_stored=True)
    assert {key: sorted(ns) if key is None else ns for key, ns in left.items()} == {
        k: ns for k, ns in sent.items() if ns
    }
