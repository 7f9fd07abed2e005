"""Handlers of consumer group requests, which map them to events of the coordinator and its replies back."""

import asyncio
from typing import Any

from seaweedmq.core.kafka.groups import classic_events as events
from seaweedmq.errors import SeaweedMQError, StaleMetadata
from seaweedmq.kafka.groups.coordinators import Coordinators
from seaweedmq.kafka.wire import messages
from seaweedmq.kafka.wire.error_mapping import ErrorScope, KafkaError, code_of
from seaweedmq.kafka.wire.replies.group_replies import heartbeat_reply
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.kafka.groups import GroupState, ListedGroup
from seaweedmq.ports import Environment

CLASSIC = "classic"
"""The only supported type of groups."""
CLIENT_ID_LENGTH_MAX = 255
"""Characters of a client id that are stored; the rest is cut off."""
NAME_LENGTH_MAX = 249
"""Maximum characters of an instance id, a protocol, or a protocol type."""
MEMBER_ID_FROM, REBALANCE_TIMEOUT_FROM, NAMED_ERRORS_FROM, SKIPPED_FROM = 4, 1, 6, 9
NULL_PROTOCOL_FROM, MANY_LEAVE_FROM, PROTOCOL_NAMED_FROM = 7, 3, 5
LEAVING_AT_ONCE = 20
"""Maximum number of members that leave in one event."""
GROUP_OPERATIONS = frozenset({3, 6, 8, 10, 11})
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: there are no permissions."""


class ClassicGroupHandlers(messages.HandlerGroup):
    """Handlers of the requests of classic groups."""

    def __init__(self, coordinators: Coordinators, env: Environment) -> None:
        self._coordinators = coordinators
        self._env = env

    async def join_group(self, request: messages.Request) -> messages.Reply:
        """Handle JoinGroup; wait until the rebalance completes, as long as the coordinator's timers allow."""
        body = request.body
        _check_texts(body)
        client_id = request.context.client_id[:CLIENT_ID_LENGTH_MAX]
        named = body.rebalance_timeout_ms if request.version >= REBALANCE_TIMEOUT_FROM else -1
        answer = self._coordinators.shard_of(_named(body.group_id)).submit(
            lambda token: events.Join(
                token=token,
                group=body.group_id,
                member=body.member_id,
                new_member=self._new_member(body.group_instance_id or client_id),
                instance=body.group_instance_id,
                client_id=client_id,
                client_host=request.client_host,
                protocol_type=body.protocol_type,
                protocols=tuple((each.name, bytes(each.metadata)) for each in body.protocols),
                session_timeout_ms=body.session_timeout_ms,
                rebalance_timeout_ms=named if named >= 0 else body.session_timeout_ms,
                require_known_member_id=request.version >= MEMBER_ID_FROM and body.group_instance_id is None,
                can_skip_assignment=request.version >= SKIPPED_FROM,
                reason=body.reason or "",
            )
        )
        request.settle()
        reply = await answer
        assert isinstance(reply, events.JoinReply)
        return messages.JoinGroupResponse(
            error_code=reply.error,
            generation_id=reply.generation,
            protocol_type=reply.protocol_type,
            protocol_name=_protocol(reply.protocol, request.version),
            leader=reply.leader,
            skip_assignment=reply.skip_assignment,
            member_id=reply.member,
            members=[
                messages.JoinGroupResponse.JoinGroupResponseMember(
                    member_id=member.id, group_instance_id=member.instance, metadata=member.metadata
                )
                for member in reply.members
            ],
        )

    async def sync_group(self, request: messages.Request) -> messages.Reply:
        """Handle SyncGroup; wait for that of the group's leader, as long as the coordinator's timers allow."""
        body = request.body
        if request.version >= PROTOCOL_NAMED_FROM and None in (body.protocol_type, body.protocol_name):
            raise KafkaError(
                Code.INCONSISTENT_GROUP_PROTOCOL,
                f"SyncGroup of {body.group_id} names no protocol: give type and name from JoinGroup's reply",
            )
        answer = self._coordinators.shard_of(_named(body.group_id)).submit(
            lambda token: events.Sync(
                token=token,
                group=body.group_id,
                member=body.member_id,
                instance=body.group_instance_id,
                generation=body.generation_id,
                protocol_type=body.protocol_type,
                protocol=body.protocol_name,
                assignments={each.member_id: bytes(each.assignment) for each in body.assignments},
            )
        )
        request.settle()
        reply = await answer
        assert isinstance(reply, events.SyncReply)
        return messages.SyncGroupResponse(
            error_code=reply.error,
            protocol_type=reply.protocol_type,
            protocol_name=reply.protocol,
            assignment=reply.assignment,
        )

    def heartbeat(self, request: messages.Request) -> "asyncio.Future[messages.Reply]":
        """Handle Heartbeat; the future is usually done on return."""
        body, version = request.body, request.version
        return self._coordinators.shard_of(_named(body.group_id)).submit(
            lambda token: events.Heartbeat(
                token=token,
                group=body.group_id,
                member=body.member_id,
                instance=body.group_instance_id,
                generation=body.generation_id,
            ),
            lambda reply: heartbeat_reply(version, reply.error),
        )

    async def leave_group(self, request: messages.Request) -> messages.Reply:
        """Handle LeaveGroup; many members leave in parts, with pauses for other tasks."""
        body = request.body
        shard = self._coordinators.shard_of(_named(body.group_id))

        async def left(leaving: tuple[events.Leaving, ...]) -> events.LeaveReply:
            reply = await shard.submit(lambda token: events.Leave(token=token, group=body.group_id, members=leaving))
            assert isinstance(reply, events.LeaveReply)
            return reply

        if request.version < MANY_LEAVE_FROM:
            reply = await left((events.Leaving(body.member_id),))
            of_one = next((error for _, error in reply.members), reply.error)
            return messages.LeaveGroupResponse(error_code=reply.error or of_one)
        members = []
        for first in range(0, max(len(body.members), 1), LEAVING_AT_ONCE):
            some = body.members[first : first + LEAVING_AT_ONCE]
            reply = await left(
                tuple(events.Leaving(one.member_id, one.group_instance_id, one.reason or "") for one in some)
            )
            if reply.error:
                return messages.LeaveGroupResponse(error_code=reply.error, members=[])
            members += [
                messages.LeaveGroupResponse.MemberResponse(
                    member_id=leaving.member, group_instance_id=leaving.instance, error_code=error
                )
                for leaving, error in reply.members
            ]
            await request.turn.pause()
        return messages.LeaveGroupResponse(error_code=0, members=members)

    def _new_member(self, prefix: str) -> str:
        """Return a unique member id: the prefix and 128 random bits in the form of a UUID."""
        digits = f"{self._env.rng.getrandbits(128):032x}"
        return "-".join((prefix, digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))

    async def describe_groups(self, request: messages.Request) -> messages.Reply:
        """Handle DescribeGroups; each group has its own error, since other brokers may coordinate some."""
        operations = set(GROUP_OPERATIONS) if request.body.include_authorized_operations else None
        groups = []
        for group in request.body.groups:
            groups.append(await self._described(group, operations, request.version))
            await request.turn.pause()
        return messages.DescribeGroupsResponse(groups=groups)

    async def _described(self, group: str, operations: set[int] | None, version: int) -> messages.Reply:
        make = messages.DescribeGroupsResponse.DescribedGroup
        try:
            found = await self._coordinators.shard_of(group).read(lambda state: state.describe(group))
        except SeaweedMQError as error:
            code = code_of(error, scope=ErrorScope.COORDINATOR)
            return make(group_id=group, error_code=code, error_message=str(error))
        if found.state is GroupState.DEAD and version >= NAMED_ERRORS_FROM:
            return make(
                group_id=group,
                error_code=Code.GROUP_ID_NOT_FOUND,
                error_message=f"Group {group} not found.",
                group_state=found.state.value,
            )
        return make(
            group_id=group,
            group_state=found.state.value,
            protocol_type=found.protocol_type,
            protocol_data=found.protocol,
            members=[
                messages.DescribeGroupsResponse.DescribedGroup.DescribedGroupMember(
                    member_id=member.id,
                    group_instance_id=member.instance,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata,
                    member_assignment=member.assignment,
                )
                for member in found.members
            ],
            authorized_operations=operations,
        )

    async def list_groups(self, request: messages.Request) -> messages.Reply:
        """Handle ListGroups with the groups that this broker coordinates; clients query every broker."""
        states = {state.lower() for state in request.body.states_filter or ()}
        types = {kind.lower() for kind in request.body.types_filter or ()}
        groups: list[ListedGroup] = []
        for shard in self._coordinators.here():
            try:
                groups += await shard.read(lambda state: state.groups())
            except StaleMetadata:
                continue  # the shard moved to another broker, which the client also queries
            await request.turn.pause()
        listed = []
        for group in groups:
            if (not states or group.state.value.lower() in states) and (not types or CLASSIC in types):
                made = messages.ListGroupsResponse.ListedGroup(
                    group_id=group.group,
                    protocol_type=group.protocol_type,
                    group_state=group.state.value,
                    group_type=CLASSIC,
                )
                listed.append(made)
            await request.turn.pause()
        return messages.ListGroupsResponse(groups=listed)

    async def delete_groups(self, request: messages.Request) -> messages.Reply:
        """Handle DeleteGroups; each group has its own error."""
        make, results = messages.DeleteGroupsResponse.DeletableGroupResult, dict[str, Any]()
        for group in request.body.groups_names:
            if group not in results:
                results[group] = make(group_id=group, error_code=await self._deleted(group))
            await request.turn.pause()
        return messages.DeleteGroupsResponse(results=list(results.values()))

    async def _deleted(self, group: str) -> int:
        try:
            reply = await self._coordinators.shard_of(group).submit(lambda token: events.RemoveGroup(token, group))
        except SeaweedMQError as error:
            return code_of(error, scope=ErrorScope.COORDINATOR)
        assert isinstance(reply, events.DeleteGroupReply)
        return reply.error


def _named(group: str) -> str:
    """Return the group id of a member's request, or raise KafkaError INVALID_GROUP_ID if it is empty."""
    if not group:
        raise KafkaError(Code.INVALID_GROUP_ID, "group id is empty: set group.id")
    return group


def _check_texts(body: Any) -> None:
    """Check the lengths of texts that the group's record stores.

    Raises KafkaError if one is too long: INVALID_REQUEST for the instance id, else INCONSISTENT_GROUP_PROTOCOL.
    """
    if body.group_instance_id is not None and not 1 <= len(body.group_instance_id) <= NAME_LENGTH_MAX:
        raise KafkaError(Code.INVALID_REQUEST, f"group.instance.id must have 1 to {NAME_LENGTH_MAX} characters")
    if any(len(name) > NAME_LENGTH_MAX for name in (body.protocol_type, *(each.name for each in body.protocols))):
        raise KafkaError(
            Code.INCONSISTENT_GROUP_PROTOCOL,
            f"a protocol name or type is too long: use up to {NAME_LENGTH_MAX} characters",
        )


def _protocol(name: str | None, version: int) -> str | None:
    """Return the protocol as a version of JoinGroup's reply encodes it: null or "" for none."""
    return name or (None if version >= NULL_PROTOCOL_FROM else "")
