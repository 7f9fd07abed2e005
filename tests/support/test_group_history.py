"""Tests of the group checker: it accepts redeliveries after a death, and rejects all others."""

import pytest

from tests.support.group_history import Delivered, GroupHistory, check_group
from tests.support.history import Outcome, Sent


def sent(count: int, *, key: bytes = b"k", outcome: Outcome = Outcome.ACKED) -> list[Sent]:
    is_acked = outcome is Outcome.ACKED
    return [
        Sent(
            producer="p",
            key=key,
            sequence=number,
            value=key + b"%d" % number,
            outcome=outcome,
            segment=0 if is_acked else None,
            offset=number if is_acked else None,
        )
        for number in range(count)
    ]


def story(*given: tuple[str, int], deaths: dict[str, int] | None = None, count: int = 4) -> GroupHistory:
    """Return a history in which members get records by number, one a tick; ``deaths`` names ticks."""
    delivered = [
        Delivered(member=member, at_ns=tick, segment=0, offset=number, key=b"k", value=b"k%d" % number)
        for tick, (member, number) in enumerate(given)
    ]
    return GroupHistory(sent(count), delivered, deaths or {})


def rules(history: GroupHistory, *, complete: bool = True) -> set[str]:
    return {violation.rule for violation in check_group(history, complete=complete)}


AGAIN = (("a", 0), ("a", 1), ("b", 1), ("b", 2), ("b", 3))
THRICE = (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2), ("c", 3))
WAKING = (("a", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 2), ("b", 3))


@pytest.mark.parametrize(
    ("what", "given", "deaths", "found"),
    [
        ("members that take over from each other", (("a", 0), ("a", 1), ("b", 2), ("a", 3)), {}, set()),
        ("a dead member had it", AGAIN, {"a": 2}, set()),
        ("a living member had it", AGAIN, {}, {"duplicated"}),
        ("it came again before the death", AGAIN, {"a": 3}, {"duplicated"}),
        ("a member gets one twice", (("a", 0), ("a", 0), ("a", 1), ("a", 2), ("a", 3)), {}, {"duplicated"}),
        ("two living members at a time", (("a", 0), ("b", 2), ("a", 1), ("b", 3)), {}, {"reordered"}),
        ("c itself goes back", (("a", 0), ("b", 1), ("c", 2), ("c", 1), ("c", 3)), {"b": 2}, {"reordered"}),
        ("two deaths", THRICE, {"a": 2, "b": 4}, set()),
        ("the second one lives", THRICE, {"a": 2}, {"duplicated"}),
        ("a frozen member wakes up", WAKING, {"a": 2}, set()),
        ("and was not dead when it got one", WAKING, {"a": 5}, {"duplicated"}),
    ],
)
def test_only_what_a_dead_member_had_comes_again(
    what: str, given: tuple[tuple[str, int], ...], deaths: dict[str, int], found: set[str]
) -> None:
    assert rules(story(*given, deaths=deaths)) == found, what


def test_what_nobody_got_is_lost_unless_it_has_no_outcome_and_the_rules_on_values_hold_for_groups() -> None:
    history = story(("a", 0), ("a", 1), ("a", 3))
    assert rules(history) == {"lost"}
    assert rules(history, complete=False) == set()
    history = story(("a", 0), ("a", 1))
    history.sent[2:] = sent(4, outcome=Outcome.UNKNOWN)[2:]
    assert rules(history) == set()
    history = story(("a", 0), ("a", 1), ("a", 2), ("a", 3))
    history.delivered.append(Delivered(member="a", at_ns=9, segment=0, offset=3, key=b"x", value=b"other"))
    assert rules(history) == {"never sent", "one value per offset"}
