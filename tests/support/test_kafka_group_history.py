"""Tests of the Kafka group checker: it accepts redelivered records, and rejects lost commits."""

from collections.abc import Sequence

from tests.support.kafka_group_history import Assigned, Committed, Given, Tenures, check_tenures

P = ("orders", 3)


def commits(*offsets: int, begin: int = 10, took: int = 0) -> list[Committed]:
    """Return one commit every ten ticks; each takes ``took`` ticks."""
    return [
        Committed(who="a", generation=1, partition=P, offset=offset, begin_ns=at, end_ns=at + took)
        for at, offset in zip(range(begin, 10**6, 10), offsets, strict=False)
    ]


def given(member: str, at: int, *offsets: int) -> list[Given]:
    return [Given(member=member, partition=P, offset=offset, at_ns=at) for offset in offsets]


def assigned(member: str, at: int, generation: int) -> Assigned:
    return Assigned(member=member, generation=generation, partition=P, at_ns=at)


def rules(committed: Sequence[Committed] = (), owners: Sequence[Assigned] = (), got: Sequence[Given] = ()) -> set[str]:
    return {v.rule for v in check_tenures(Tenures(list(committed), list(owners), list(got)))}


def test_nobody_begins_below_what_was_committed_for_sure() -> None:
    owners = [assigned("a", 1, 1), assigned("b", 50, 2)]
    got = [*given("a", 5, 0, 1, 2), *given("b", 60, 1, 2, 3)]
    assert rules(commits(1), owners, got) == set(), "what was not committed comes again"
    assert rules(commits(2), owners, got) == {"read below committed"}
    assert rules(commits(2, took=45), owners, got) == set(), "a commit without an answer binds no reader"


def test_commits_do_not_go_back_and_members_get_every_offset_of_what_they_alone_own() -> None:
    assert rules(commits(3, 5, 5, 9)) == set()
    assert rules(commits(3, 5, 4, 9)) == {"committed goes back"}
    assert rules(commits(5, 4, took=15)) == set(), "of two commits at once either may be the last"
    assert rules(owners=[assigned("a", 1, 1), assigned("b", 2, 1)]) == {"two owners"}
    assert rules(owners=[assigned("a", 1, 1), assigned("b", 2, 2)]) == set()
    assert rules(owners=[assigned("a", 1, 1)], got=given("a", 5, 0, 1, 3)) == {"gap"}
    assert rules(got=given("a", 5, 0)) == {"not its own"}
