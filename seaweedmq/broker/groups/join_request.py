"""The first message of a member's stream: looked at where it comes in, and passed on with what follows."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.groups import GroupOpen, GroupRequest
from seaweedmq.model.subscribe import Start
from seaweedmq.model.topic import check_name

CLIENT_LENGTH_MAX = 200


def checked(opening: GroupOpen) -> GroupOpen:
    """As it may be kept. InvalidArgument."""
    check_name("group", opening.group)
    check_name("member", opening.member)
    check_start(opening.start)
    client = "".join(c for c in opening.client if c.isprintable())[:CLIENT_LENGTH_MAX]
    return replace(opening, client=client or "unknown")


def check_start(start: Start) -> None:
    """InvalidArgument."""
    if start.value < 0:
        raise InvalidArgument(f"{start.kind} {start.value} is below 0: give an offset, or a time from 1970 on")


async def with_first(opening: GroupOpen, requests: AsyncIterator[GroupRequest]) -> AsyncGenerator[GroupRequest, None]:
    """The stream as it was before its first message was taken."""
    yield opening
    async for request in requests:
        yield request
