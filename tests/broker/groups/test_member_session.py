"""The coordinator's end of a member's stream."""

import asyncio
from typing import Any

from seaweedmq.broker.groups.member_session import MemberSession
from seaweedmq.model.messages.groups import GroupAssignment, GroupCommitted, Ownership
from seaweedmq.model.messages.subscribe import EARLIEST


def assigned(*ownerships: tuple[int, int]) -> GroupAssignment:
    """Return an assignment of segments, each as a pair of segment id and generation."""
    owned = (
        Ownership(segment=segment, generation=generation, start=EARLIEST, deliveries={}, crashes=0)
        for segment, generation in ownerships
    )
    return GroupAssignment(generation=9, owned=tuple(owned))


async def sent(seat: MemberSession) -> Any:
    reading = asyncio.create_task(asyncio.sleep(3600))
    replies = seat.replies(reading)
    reply = await anext(replies)
    await replies.aclose()
    return reply


async def test_of_assignments_only_the_latest_is_sent_and_what_was_in_the_others_alone_is_named() -> None:
    seat = MemberSession(1, "m", {})
    assert seat.say(assigned((2, 2), (3, 4))) == {}
    assert seat.say(assigned((2, 2), (5, 5))) == {3: 4}
    assert seat.say(assigned((2, 2))) == {5: 5}
    assert await sent(seat) == assigned((2, 2))


async def test_what_was_sent_or_held_is_the_members_to_release() -> None:
    seat = MemberSession(1, "m", {0: 1})
    assert seat.say(assigned((0, 1), (1, 1))) == {}
    assert seat.say(assigned((1, 1))) == {}, "it said that it holds it"
    await sent(seat)
    assert seat.say(assigned((2, 2))) == {}
    await sent(seat)
    assert seat.say(assigned((2, 2), (3, 3))) == {}
    assert seat.say(assigned()) == {3: 3}


async def test_a_segment_of_a_later_generation_is_another_ownership() -> None:
    seat = MemberSession(1, "m", {0: 1})
    seat.say(assigned((0, 7)))
    assert seat.say(assigned()) == {0: 7}


async def test_answers_are_all_sent() -> None:
    seat = MemberSession(1, "m", {})
    for number in (1, 2):
        await seat.expect(number)
        assert seat.say(GroupCommitted(number, {})) == {}
    assert [await sent(seat), await sent(seat)] == [GroupCommitted(1, {}), GroupCommitted(2, {})]
