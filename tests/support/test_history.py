"""Tests of the history checker: each rule accepts a good history, and names the record in a bad one."""

from dataclasses import replace

import pytest

from tests.support.history import History, Outcome, Polled, Sent, check


def sent(number: int, *, offset: int | None = None, outcome: Outcome = Outcome.ACKED, key: bytes = b"k") -> Sent:
    return Sent(
        producer="p",
        key=key,
        sequence=number,
        value=b"v%d" % number,
        outcome=outcome,
        segment=0 if outcome is Outcome.ACKED else None,
        offset=number if offset is None and outcome is Outcome.ACKED else offset,
    )


def polled(number: int, *, offset: int | None = None, reader: str = "r", key: bytes = b"k", segment: int = 0) -> Polled:
    return Polled(
        reader=reader, segment=segment, offset=number if offset is None else offset, key=key, value=b"v%d" % number
    )


def rules(history: History, complete: tuple[str, ...] = ("r",)) -> set[str]:
    return {violation.rule for violation in check(history, complete=complete)}


def good() -> History:
    return History([sent(n) for n in range(5)], [polled(n) for n in range(5)])


def test_a_good_or_empty_history_is_silent() -> None:
    assert rules(good()) == rules(History()) == set()


@pytest.mark.parametrize(
    ("last_sent", "last_polled", "found"),
    [
        (sent(4), [], {"lost"}),
        (sent(4, outcome=Outcome.REFUSED), [polled(4)], {"refused and read"}),
        (sent(4, outcome=Outcome.UNKNOWN), [polled(3, offset=4)], {"duplicated", "elsewhere", "reordered"}),
        (sent(4, offset=17), [polled(4)], {"elsewhere", "lost"}),
        (sent(4), [polled(4), polled(99, offset=5)], {"never sent"}),
    ],
    ids=["not read", "refused", "stored twice", "elsewhere", "never sent"],
)
def test_each_rule_names_the_record_that_breaks_it(last_sent: Sent, last_polled: list[Polled], found: set[str]) -> None:
    history = good()
    history.sent[4], history.polled[4:] = last_sent, last_polled
    assert rules(history) == found


def test_what_was_acknowledged_must_be_there_and_only_an_incomplete_reader_may_end_early() -> None:
    history = good()
    history.polled = history.polled[:3]
    assert rules(history, complete=()) == set()
    history.polled = [polled(0), polled(1), polled(3)]
    assert rules(history, complete=()) == {"lost", "gap"}
    history = good()
    history.sent[4] = sent(4, outcome=Outcome.UNKNOWN)
    assert rules(history) == set()
    history.polled = history.polled[:4]
    assert rules(history) == set()
    history = good()
    history.sent[2] = replace(history.sent[2], segment=None, offset=None)
    assert rules(history) == set()
    history.sent.append(replace(sent(9), segment=None, offset=None))
    assert rules(history) == {"lost"}
    assert rules(history, complete=()) == set()


def test_offsets_have_one_value_and_rise_with_the_records_of_a_key() -> None:
    history = good()
    history.sent.append(sent(5, outcome=Outcome.UNKNOWN))
    history.polled.append(replace(polled(5), reader="other", offset=4))
    assert "one value per offset" in rules(history)
    history = good()
    history.sent = [sent(n, offset={2: 3, 3: 2}.get(n, n)) for n in range(5)]
    history.polled = [polled(n, offset=o) for o, n in enumerate((0, 1, 3, 2, 4))]
    assert rules(history) == {"reordered"}
    history = History([sent(0, offset=7), sent(1, offset=2)], [polled(0, offset=7), polled(1, offset=2, segment=1)])
    history.sent[1] = replace(history.sent[1], segment=1)
    assert rules(history) == {"offsets fall"}
