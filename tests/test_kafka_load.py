"""Tests that the Kafka load's checker finds each kind of broken promise, and nothing else."""

from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")

from benchmarks.kafka_load.checker import Promise, Verdict, delivery_ms, judge
from benchmarks.kafka_load.figures import Step, what_gave
from benchmarks.kafka_load.journal import JournalWriter, read_journal, rows_of
from benchmarks.kafka_load.records import Damaged, Orders, head_of
from benchmarks.kafka_load.tiers import TIERS

pytestmark = pytest.mark.deep

SENT = {1: Promise(sent=4)}
WELL = [(0, 10, 1, 7, 0), (1, 5, 1, 8, 1), (0, 11, 1, 7, 2), (1, 6, 1, 8, 3)]
"""Valid records (partition, offset, producer, key, sequence) as delivered to one member."""


def test_each_record_once_and_in_order_is_well() -> None:
    assert judge(SENT, [rows_of(*WELL)]) == Verdict(delivered=4)


def test_it_is_well_too_when_a_partition_goes_on_with_another_member() -> None:
    assert judge(SENT, [rows_of(*WELL[:2]), rows_of(*WELL[2:])]) == Verdict(delivered=4)


def test_what_was_acknowledged_and_never_came_is_lost() -> None:
    assert judge(SENT, [rows_of(*WELL[:3])]) == Verdict(delivered=3, lost=1)
    assert judge(SENT, []) == Verdict(lost=4)


def test_what_was_not_acknowledged_may_come_or_not() -> None:
    doubtful = {1: Promise(sent=4, refused=[3])}
    assert judge(doubtful, [rows_of(*WELL)]) == Verdict(delivered=4)
    assert judge(doubtful, [rows_of(*WELL[:3])]) == Verdict(delivered=3)


def test_a_record_at_two_offsets_is_stored_twice() -> None:
    assert judge(SENT, [rows_of(*WELL, (1, 7, 1, 8, 3))]) == Verdict(delivered=5, stored_twice=1)
    elsewhere = judge(SENT, [rows_of(*WELL), rows_of((2, 0, 1, 8, 3))])
    assert elsewhere == Verdict(delivered=5, stored_twice=1)


def test_an_offset_that_comes_to_two_members_is_delivered_again() -> None:
    assert judge(SENT, [rows_of(*WELL), rows_of(WELL[3])]) == Verdict(delivered=5, delivered_again=1)


def test_an_offset_that_comes_to_a_member_again_is_not_out_of_order() -> None:
    assert judge(SENT, [rows_of(*WELL, WELL[0])]) == Verdict(delivered=5, delivered_again=1)


def test_a_later_record_of_a_key_at_a_lower_offset_is_reordered() -> None:
    swapped = [(0, 10, 1, 7, 2), WELL[1], (0, 11, 1, 7, 0), WELL[3]]
    assert judge(SENT, [rows_of(*swapped)]) == Verdict(delivered=4, reordered=1)


def test_records_of_different_keys_or_producers_have_no_order() -> None:
    sent = {1: Promise(sent=2), 2: Promise(sent=1)}
    rows = [(0, 0, 1, 7, 1), (0, 1, 1, 8, 0), (0, 2, 2, 7, 0)]
    assert judge(sent, [rows_of(*rows)]) == Verdict(delivered=3)


def test_an_offset_that_comes_after_a_higher_one_is_reordered() -> None:
    assert judge(SENT, [rows_of(WELL[2], WELL[1], WELL[0], WELL[3])]) == Verdict(delivered=4, reordered=1)


def test_what_nobody_sent_is_strange() -> None:
    assert judge(SENT, [rows_of(*WELL, (0, 12, 1, 7, 4), (0, 13, 9, 7, 0))]) == Verdict(delivered=6, strange=2)


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
    assert (head.producer, head.sequence, head.due_ns) == (3, 12_345, 99)
    assert key == b"customer-%08d" % head.key
    assert 100 < len(value) < 1_000


def test_a_record_that_was_changed_on_its_way_is_damaged() -> None:
    key, value = Orders(3).record(0, 0)
    other, _ = Orders(3).record(1, 0)
    for changed in ((other, value), (None, value), (key, None), (key, value[:-3]), (key, value[:-1] + b"\x7f")):
        with pytest.raises(Damaged):
            head_of(*changed)


@pytest.mark.parametrize(
    ("showed", "gave"),
    [
        ({}, None),
        ({"refused": 1, "deliver_ms_p99": 5_000.0}, "errors and latency"),
        ({"machine_percent": 99.0}, None),
        ({"machine_percent": 99.0, "sent_per_s": 900.0}, "rate for want of CPU"),
        ({"sent_per_s": 900.0}, "rate"),
        ({"resident_mb": 2_000.0}, "memory"),
    ],
)
def test_a_load_that_is_too_much_says_what_gave(showed: dict[str, float], gave: str | None) -> None:
    calm: dict[str, float] = {
        "producers": 2,
        "consumers": 3,
        "due_per_s": 1_000.0,
        "sent_per_s": 1_000.0,
        "refused": 0,
        "ack_ms_p99": 5.0,
        "deliver_ms_p50": 5.0,
        "deliver_ms_p99": 20.0,
        "broker_percent": 50.0,
        "machine_percent": 60.0,
        "resident_mb": 200.0,
    }
    assert what_gave(Step(**(calm | showed))) == gave  # type: ignore[arg-type]


def test_the_tiers_differ_in_how_long_and_how_hard() -> None:
    assert set(TIERS) == {"quick", "standard", "stress", "endurance"}
    assert TIERS["quick"].seconds < TIERS["standard"].seconds < TIERS["endurance"].seconds
    assert TIERS["stress"].climb > 1
