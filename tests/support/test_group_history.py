"""Tests of the group checker: it accepts redeliveries after a death, and rejects all others."""

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


def test_members_that_take_over_from_each_other_are_silent() -> None:
    assert rules(story(("a", 0), ("a", 1), ("b", 2), ("a", 3))) == set()


def test_what_a_dead_member_had_may_come_again() -> None:
    assert rules(story(("a", 0), ("a", 1), ("b", 1), ("b", 2), ("b", 3), deaths={"a": 2})) == set()


def test_what_a_living_member_had_comes_not_again() -> None:
    assert rules(story(("a", 0), ("a", 1), ("b", 1), ("b", 2), ("b", 3))) == {"duplicated"}


def test_what_comes_again_before_the_death_is_not_excused_by_it() -> None:
    history = story(("a", 0), ("a", 1), ("b", 1), ("b", 2), ("b", 3), deaths={"a": 3})
    assert rules(history) == {"duplicated"}


def test_a_member_gets_nothing_twice() -> None:
    assert rules(story(("a", 0), ("a", 0), ("a", 1), ("a", 2), ("a", 3))) == {"duplicated"}


def test_two_living_members_have_not_one_key_at_a_time() -> None:
    assert rules(story(("a", 0), ("b", 2), ("a", 1), ("b", 3))) == {"reordered"}


def test_a_death_excuses_only_what_the_dead_one_had() -> None:
    history = story(("a", 0), ("b", 1), ("c", 2), ("c", 1), ("c", 3), deaths={"b": 2})
    assert rules(history) == {"reordered"}, "c itself went back"


def test_the_second_of_two_deaths_is_judged_like_the_first() -> None:
    again = (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 0), ("c", 1), ("c", 2), ("c", 3))
    assert rules(story(*again, deaths={"a": 2, "b": 4})) == set()
    assert rules(story(*again, deaths={"a": 2})) == {"duplicated"}


def test_what_a_frozen_member_does_when_it_wakes_is_nobodys_fault() -> None:
    again = (("a", 0), ("a", 1), ("b", 1), ("b", 2), ("a", 2), ("b", 3))
    assert rules(story(*again, deaths={"a": 2})) == set()
    assert rules(story(*again, deaths={"a": 5})) == {"duplicated"}


def test_what_nobody_got_is_lost_once_the_group_has_read_everything() -> None:
    history = story(("a", 0), ("a", 1), ("a", 3))
    assert rules(history) == {"lost"}
    assert rules(history, complete=False) == set()


def test_records_without_an_outcome_may_come_or_not() -> None:
    history = story(("a", 0), ("a", 1))
    history.sent[2:] = sent(4, outcome=Outcome.UNKNOWN)[2:]
    assert rules(history) == set()


def test_the_rules_on_places_and_values_hold_for_groups() -> None:
    history = story(("a", 0), ("a", 1), ("a", 2), ("a", 3))
    history.delivered.append(Delivered(member="a", at_ns=9, segment=0, offset=3, key=b"x", value=b"other"))
    assert rules(history) == {"never sent", "one value per offset"}
