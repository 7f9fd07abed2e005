"""Calls about groups: checked here, answered by the coordinator on the leader. Only shells: see ``groups``."""

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import replace

from seaweedmq.broker.forward import Forwarding, NoLeader
from seaweedmq.broker.groups.registry import Groups
from seaweedmq.broker.leader.leader import Leader
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.groups import GroupDescription, GroupOpen, GroupReply, GroupRequest, GroupSummary
from seaweedmq.model.subscribe import Start
from seaweedmq.model.topic import TopicName, check_name
from seaweedmq.runtime.closing import closing

CLIENT_LENGTH_MAX = 200


class GroupCalls:
    """Part of ``ports.LeaderApi``; see there."""

    _forward: Forwarding

    async def join_group(self, requests: AsyncIterator[GroupRequest]) -> AsyncGenerator[GroupReply, None]:
        """See ``ports.LeaderApi``."""
        opening = await anext(requests, None)
        if not isinstance(opening, GroupOpen):
            raise InvalidArgument("a member's stream begins with GroupOpen: send that first")
        opening = _checked(opening)
        async with closing(
            self._forward.stream_by_leader(
                lambda leader: _groups(leader).join(opening, requests),
                lambda api: api.join_group(_with_first(opening, requests)),
            )
        ) as replies:
            async for reply in replies:
                yield reply

    async def list_groups(self) -> tuple[GroupSummary, ...]:
        """See ``ports.LeaderApi``."""

        async def local(leader: Leader) -> tuple[GroupSummary, ...]:
            return await _groups(leader).summaries()

        return await self._forward.by_leader(local, lambda api: api.list_groups())

    async def describe_group(self, group: str) -> GroupDescription:
        """See ``ports.LeaderApi``."""

        async def local(leader: Leader) -> GroupDescription:
            return await _groups(leader).describe(group)

        check_name("group", group)
        return await self._forward.by_leader(local, lambda api: api.describe_group(group))

    async def reset_group(self, group: str, name: TopicName, start: Start, force: bool) -> GroupDescription:
        """See ``ports.LeaderApi``."""

        async def local(leader: Leader) -> GroupDescription:
            return await _groups(leader).reset(group, name, start, force)

        check_name("group", group)
        _check_start(start)
        return await self._forward.by_leader(local, lambda api: api.reset_group(group, name, start, force))

    async def delete_group(self, group: str, force: bool) -> None:
        """See ``ports.LeaderApi``."""

        async def local(leader: Leader) -> None:
            await _groups(leader).delete(group, force)

        check_name("group", group)
        await self._forward.by_leader(local, lambda api: api.delete_group(group, force))


def _groups(leader: Leader) -> Groups:
    groups = leader.groups.groups
    if groups is None:
        raise NoLeader("the leader was elected a moment ago and does not coordinate groups yet: try again")
    return groups


async def _with_first(opening: GroupOpen, requests: AsyncIterator[GroupRequest]) -> AsyncGenerator[GroupRequest, None]:
    yield opening
    async for request in requests:
        yield request


def _checked(opening: GroupOpen) -> GroupOpen:
    """As it may be kept. InvalidArgument."""
    check_name("group", opening.group)
    check_name("member", opening.member)
    _check_start(opening.start)
    client = "".join(c for c in opening.client if c.isprintable())[:CLIENT_LENGTH_MAX]
    return replace(opening, client=client or "unknown")


def _check_start(start: Start) -> None:
    if start.value < 0:
        raise InvalidArgument(f"{start.kind} {start.value} is below 0: give an offset, or a time from 1970 on")
