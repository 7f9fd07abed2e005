"""The campaign for the leader lock, as transcripts: event in, next action out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.leadership import (
    Ask,
    Campaign,
    Ended,
    Event,
    LockFree,
    LockHeld,
    LockHeldByOther,
    Pause,
    Stop,
    StoreUnavailable,
    Tick,
    Watch,
)

TTL_S = 2.0


def play(*story: tuple[float, Event]) -> list[str]:
    """Return a line per event: the time, the event, the next action, and the revision of the leadership."""
    campaign = Campaign(TTL_S)
    lines = [f"{campaign.action}"]
    for now, event in story:
        action = campaign.handle(event, now)
        lines.append(
            f"{now:g} {event} -> {action} {'leads ' + str(campaign.revision) if campaign.revision else ''}".strip()
        )
    return lines


def test_the_first_to_ask_leads_and_looks_at_its_lock_again_and_again() -> None:
    assert play((0, LockHeld(7)), (5, Tick()), (5, LockHeld(7))) == [
        "Ask()",
        "0 LockHeld(revision=7) -> Watch(revision=7, until=5.0) leads 7",
        "5 Tick() -> Ask() leads 7",
        "5 LockHeld(revision=7) -> Watch(revision=7, until=10.0) leads 7",
    ]
    assert play((0, LockFree()), (0, LockHeld(5)))[1:] == [
        "0 LockFree() -> Ask()",
        "0 LockHeld(revision=5) -> Watch(revision=5, until=5.0) leads 5",
    ]


def test_a_loser_watches_and_asks_when_the_lock_is_free_and_every_two_and_a_half_ttl() -> None:
    assert play((0, LockHeldByOther(3)), (4, LockFree()), (4, LockHeld(9))) == [
        "Ask()",
        "0 LockHeldByOther(revision=3) -> Watch(revision=3, until=5.0)",
        "4 LockFree() -> Ask()",
        "4 LockHeld(revision=9) -> Watch(revision=9, until=9.0) leads 9",
    ]
    assert play((0, LockHeldByOther(3)), (5, Tick()), (5, LockHeldByOther(3)), (10, Tick()))[1:] == [
        "0 LockHeldByOther(revision=3) -> Watch(revision=3, until=5.0)",
        "5 Tick() -> Ask()",
        "5 LockHeldByOther(revision=3) -> Watch(revision=3, until=10.0)",
        "10 Tick() -> Ask()",
    ]


def test_a_leader_goes_on_while_etcd_is_away_until_its_lock_is_taken_or_its_session_ends() -> None:
    assert play((0, LockHeld(7)), (3, StoreUnavailable(0.5)), (3.5, Tick()), (4, StoreUnavailable(0.5)))[2:] == [
        "3 StoreUnavailable(pause_s=0.5) -> Pause(until=3.5) leads 7",
        "3.5 Tick() -> Ask() leads 7",
        "4 StoreUnavailable(pause_s=0.5) -> Pause(until=4.5) leads 7",
    ]
    assert play((0, LockHeld(7)), (1, LockFree()), (1, LockHeldByOther(8)))[2:] == [
        "1 LockFree() -> Ask()",
        "1 LockHeldByOther(revision=8) -> Watch(revision=8, until=6.0)",
    ]
    assert play((0, LockHeld(7)), (1, Ended()), (2, Ended()))[2:] == ["1 Ended() -> Stop()", "2 Ended() -> Stop()"]


@pytest.mark.parametrize(("before", "event"), [((), Tick()), ((LockHeld(1),), LockHeld(1)), ((Ended(),), LockFree())])
def test_an_event_that_can_not_be_is_a_fault(before: tuple[Event, ...], event: Event) -> None:
    campaign = Campaign(TTL_S)
    for earlier in before:
        campaign.handle(earlier, 0)
    with pytest.raises(AssertionError, match="cannot end"):
        campaign.handle(event, 1)


EVENTS = st.one_of(
    st.builds(LockHeld, st.integers(1, 9)),
    st.builds(LockHeldByOther, st.integers(1, 9)),
    st.just(LockFree()),
    st.builds(StoreUnavailable, st.floats(0, 1)),
    st.just(Tick()),
    st.just(Ended()),
)
POSSIBLE = {
    Ask: (LockHeld, LockHeldByOther, LockFree, StoreUnavailable, Ended),
    Watch: (LockFree, StoreUnavailable, Tick, Ended),
    Pause: (Tick, Ended),
    Stop: (Ended,),
}


@given(st.lists(EVENTS, max_size=30))
def test_it_leads_only_by_an_answer_and_never_waits_for_ever(events: list[Event]) -> None:
    campaign = Campaign(TTL_S)
    now = 0.0
    for event in events:
        if not isinstance(event, POSSIBLE[type(campaign.action)]):
            continue
        before = campaign.revision
        action = campaign.handle(event, now)
        if campaign.revision != before:
            assert campaign.revision == (event.revision if isinstance(event, LockHeld) else None)
        if isinstance(event, LockFree | LockHeldByOther | Ended):
            assert campaign.revision is None
        if isinstance(action, Watch | Pause):
            assert now <= action.until <= now + 2.5 * TTL_S
            now = action.until
