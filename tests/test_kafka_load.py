"""Tests that the Kafka load's checker finds each kind of broken promise, and nothing else."""

from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")

from benchmarks.kafka_load.checker import Promise, Verdict, delivery_ms, judge
from benchmarks.kafka_load.figures import Step, what_gave
from benchmarks.kafka_load.journal import JournalWriter, read_journal, rows_of
from benchmarks.kafka_load.records import Damaged, Orders, head_of

pytestmark = pytest.mark.deep

Row = tuple[int, int, int, int, int]
SENT = {1: Promise(sent=4)}
WELL = [(0, 10, 1, 7, 0), (1, 5, 1, 8, 1), (0, 11, 1, 7, 2), (1, 6, 1, 8, 3)]
"""Valid records (partition, offset, producer, key, sequence) as delivered to one member."""


DOUBTFUL = {1: Promise(sent=4, refused=[3])}
OF_TWO = {1: Promise(sent=2), 2: Promise(sent=1)}


@pytest.mark.parametrize(
    ("sent", "members", "found"),
    [
        pytest.param(SENT, [WELL], Verdict(delivered=4), id="each once and in order"),
        pytest.param(SENT, [WELL[:2], WELL[2:]], Verdict(delivered=4), id="a partition continues with another member"),
        pytest.param(SENT, [WELL[:3]], Verdict(delivered=3, lost=1), id="acknowledged and lost"),
        pytest.param(SENT, [], Verdict(lost=4), id="all lost"),
        pytest.param(DOUBTFUL, [WELL], Verdict(delivered=4), id="not acknowledged and delivered"),
        pytest.param(DOUBTFUL, [WELL[:3]], Verdict(delivered=3), id="not acknowledged and not delivered"),
        pytest.param(SENT, [[*WELL, (1, 7, 1, 8, 3)]], Verdict(delivered=5, stored_twice=1), id="at two offsets"),
        pytest.param(SENT, [WELL, [(2, 0, 1, 8, 3)]], Verdict(delivered=5, stored_twice=1), id="in two partitions"),
        pytest.param(SENT, [WELL, WELL[3:]], Verdict(delivered=5, delivered_again=1), id="to two members"),
        pytest.param(SENT, [[*WELL, WELL[0]]], Verdict(delivered=5, delivered_again=1), id="again to one member"),
        pytest.param(
            SENT,
            [[(0, 10, 1, 7, 2), WELL[1], (0, 11, 1, 7, 0), WELL[3]]],
            Verdict(delivered=4, reordered=1),
            id="a later record of a key at a lower offset",
        ),
        pytest.param(SENT, [[WELL[n] for n in (2, 1, 0, 3)]], Verdict(4, reordered=1), id="after a higher offset"),
        pytest.param(
            OF_TWO, [[(0, 0, 1, 7, 1), (0, 1, 1, 8, 0), (0, 2, 2, 7, 0)]], Verdict(3), id="keys have no order"
        ),
        pytest.param(SENT, [[*WELL, (0, 12, 1, 7, 4), (0, 13, 9, 7, 0)]], Verdict(6, strange=2), id="never sent"),
    ],
)
def test_every_broken_promise_is_found(sent: dict[int, Promise], members: list[list[Row]], found: Verdict) -> None:
    assert judge(sent, [rows_of(*rows) for rows in members]) == found


def test_times_of_delivery_leave_out_others_and_the_first() -> None:
    rows = rows_of(*WELL, (0, 12, 2, 7, 2))
    rows["took_ns"] = [9_000_000, 3_000_000, 2_000_000, 1_000_000, 7_000_000]
    assert delivery_ms([1], [rows], skip=1) == [1.0, 2.0, 3.0]


def test_a_journal_is_read_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    with JournalWriter(path) as writer:
        assert len(read_journal(path)) == 0
        writer.add(3, 10, 1, 7, 5, 99)
        writer.flush()
        assert read_journal(path).tolist() == [(3, 10, 1, 7, 5, 99)]


def test_an_order_is_read_as_it_was_written() -> None:
    key, value = Orders(3).record(12_345, 99)
    head = head_of(key, value)
    assert (head.producer, head.sequence, head.due_ns, key) == (3, 12_345, 99, b"customer-%08d" % head.key)
    assert 100 < len(value) < 1_000


def test_a_record_that_was_changed_on_its_way_is_damaged() -> None:
    key, value = Orders(3).record(0, 0)
    other, _ = Orders(3).record(1, 0)
    for changed in ((other, value), (None, value), (key, None), (key, value[:-3]), (key, value[:-1] + b"\x7f")):
        with pytest.raises(Damaged):
            head_of(*changed)


def test_a_load_that_is_too_much_says_what_gave() -> None:
    calm: dict[str, float] = dict.fromkeys((field.name for field in fields(Step)), 1.0)
    calm |= {"due_per_s": 1_000.0, "sent_per_s": 1_000.0, "refused": 0, "resident_mb": 200.0}
    for showed, gave in (
        ({}, None),
        ({"refused": 1, "deliver_ms_p99": 5_000.0}, "errors and latency"),
        ({"machine_percent": 99.0}, None),
        ({"machine_percent": 99.0, "sent_per_s": 900.0}, "rate for want of CPU"),
        ({"sent_per_s": 900.0}, "rate"),
        ({"resident_mb": 2_000.0}, "memory"),
    ):
        assert what_gave(Step(**(calm | showed))) == gave, showed  # type: ignore[arg-type]
