"""Check of the first message of a member's stream, where it enters the broker."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.groups import GroupOpen, GroupRequest
from seaweedmq.model.messages.subscribe import Start
from seaweedmq.model.topic import check_name

CLIENT_LENGTH_MAX = 200


def checked(opening: GroupOpen) -> GroupOpen:
    """Return the message as the group may keep it; raise InvalidArgument if a name or the start is invalid."""
    check_name("group", opening.group)
    check_name("member", opening.member)
    check_start(opening.start)
    client = "".join(c for c in opening.client if c.isprintable())[:CLIENT_LENGTH_MAX]
    return replace(opening, client=client or "unknown")


def check_start(start: Start) -> None:
    """Raise InvalidArgument for a negative start."""
    if start.value < 0:
        raise InvalidArgument(f"{start.kind} {start.value} is below 0: give an offset, or a time after 1970")


async def with_first(opening: GroupOpen, requests: AsyncIterator[GroupRequest]) -> AsyncGenerator[GroupRequest, None]:
    """Yield the first message, then the rest of the stream."""
    yield opening
    async for request in requests:
        yield request
