"""Groups on the wire: the unary calls of administration, and the member's stream."""

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.groups import (
    GroupAssignment,
    GroupCommit,
    GroupCommitted,
    GroupDescription,
    GroupLeave,
    GroupOpen,
    GroupReleased,
    GroupReply,
    GroupRequest,
    GroupSummary,
)
from seaweedmq.model.subscribe import Start
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc import group_messages, messages
from seaweedmq.rpc.methods import Unary
from seaweedmq.rpc.transport import ADMIN_SERVICE
from seaweedmq.rpc.v1 import admin_pb2, groups_pb2

LIST_GROUPS: Unary[None, tuple[GroupSummary, ...]] = Unary(
    service=ADMIN_SERVICE,
    name="ListGroups",
    request=admin_pb2.ListGroupsRequest,
    reply=admin_pb2.ListGroupsReply,
    write_request=lambda _: admin_pb2.ListGroupsRequest(),
    read_request=lambda _: None,
    write_reply=lambda groups: admin_pb2.ListGroupsReply(groups=[group_messages.write_summary(g) for g in groups]),
    read_reply=lambda m: tuple(group_messages.read_summary(group) for group in m.groups),
)
DESCRIBE_GROUP: Unary[str, GroupDescription] = Unary(
    service=ADMIN_SERVICE,
    name="DescribeGroup",
    request=admin_pb2.DescribeGroupRequest,
    reply=groups_pb2.GroupDescription,
    write_request=lambda group: admin_pb2.DescribeGroupRequest(group=group),
    read_request=lambda m: str(m.group),
    write_reply=group_messages.write_description,
    read_reply=group_messages.read_description,
)
RESET_GROUP: Unary[tuple[str, TopicName, Start, bool], GroupDescription] = Unary(
    service=ADMIN_SERVICE,
    name="ResetGroup",
    request=admin_pb2.ResetGroupRequest,
    reply=groups_pb2.GroupDescription,
    write_request=lambda r: admin_pb2.ResetGroupRequest(
        group=r[0], topic=str(r[1]), start=messages.write_start(r[2]), force=r[3]
    ),
    read_request=lambda m: (m.group, TopicName.parse(m.topic), messages.read_start(m.start), m.force),
    write_reply=group_messages.write_description,
    read_reply=group_messages.read_description,
)
DELETE_GROUP: Unary[tuple[str, bool], None] = Unary(
    service=ADMIN_SERVICE,
    name="DeleteGroup",
    request=admin_pb2.DeleteGroupRequest,
    reply=admin_pb2.DeleteGroupReply,
    write_request=lambda r: admin_pb2.DeleteGroupRequest(group=r[0], force=r[1]),
    read_request=lambda m: (m.group, m.force),
    write_reply=lambda _: admin_pb2.DeleteGroupReply(),
    read_reply=lambda _: None,
)


def encode_group_request(request: GroupRequest) -> bytes:
    """Raises InvalidArgument if a number is out of the protocol's range."""
    try:
        return _write_request(request).SerializeToString()
    except ValueError as error:
        raise InvalidArgument(
            f"{type(request).__name__} refused before it was sent: {error}; correct the value"
        ) from error


def _write_request(request: GroupRequest) -> groups_pb2.GroupRequest:
    match request:
        case GroupCommit():
            positions = [group_messages.write_position(position) for position in request.positions]
            return groups_pb2.GroupRequest(commit=groups_pb2.GroupCommit(number=request.number, positions=positions))
        case GroupReleased():
            return groups_pb2.GroupRequest(released=groups_pb2.GroupReleased(segments=request.segments))
        case GroupOpen():
            return groups_pb2.GroupRequest(open=group_messages.write_open(request))
        case GroupLeave():
            return groups_pb2.GroupRequest(leave=groups_pb2.GroupLeave())


def decode_group_request(data: bytes) -> GroupRequest:
    """Raises InvalidArgument or Unsupported."""
    message = messages.parse(groups_pb2.GroupRequest, data)
    match message.WhichOneof("request"):
        case "commit":
            positions = tuple(group_messages.read_position(position) for position in message.commit.positions)
            return GroupCommit(message.commit.number, positions)
        case "released":
            return GroupReleased(dict(message.released.segments))
        case "open":
            return group_messages.read_open(message.open)
        case "leave":
            return GroupLeave()
        case _:
            raise messages.unknown_kind(message)


def encode_group_reply(reply: GroupReply) -> bytes:
    """Protobuf bytes of a ``seaweedmq.v1.GroupReply``."""
    match reply:
        case GroupAssignment():
            message = groups_pb2.GroupReply(assignment=group_messages.write_assignment(reply))
        case GroupCommitted():
            message = groups_pb2.GroupReply(
                committed=groups_pb2.GroupCommitted(number=reply.number, refused=reply.refused)
            )
    return message.SerializeToString()


def decode_group_reply(data: bytes) -> GroupReply:
    """Raises InvalidArgument or Unsupported."""
    message = messages.parse(groups_pb2.GroupReply, data)
    match message.WhichOneof("reply"):
        case "assignment":
            return group_messages.read_assignment(message.assignment)
        case "committed":
            return GroupCommitted(message.committed.number, dict(message.committed.refused))
        case _:
            raise messages.unknown_kind(message)
