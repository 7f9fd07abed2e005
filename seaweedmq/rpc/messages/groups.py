"""Encoding of the messages of the Groups service: the stream of a member, and the admin views of groups."""

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.messages.groups import (
    GroupAssignment,
    GroupCommit,
    GroupCommitted,
    GroupDescription,
    GroupLeave,
    GroupMember,
    GroupOpen,
    GroupReleased,
    GroupReply,
    GroupRequest,
    GroupSummary,
    GroupTopic,
    Ownership,
    Position,
    SegmentLag,
)
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.messages import types
from seaweedmq.rpc.messages.types import read_start, write_start
from seaweedmq.rpc.v1 import groups_pb2


def encode_group_request(request: GroupRequest) -> bytes:
    """Encode a member's request.

    Raises:
        InvalidArgument: If a number is out of the protocol's range.
    """
    try:
        return _write_request(request).SerializeToString()
    except ValueError as error:
        raise InvalidArgument(f"{type(request).__name__} was not sent, {error}: correct the value") from error


def _write_request(request: GroupRequest) -> groups_pb2.GroupRequest:
    match request:
        case GroupCommit():
            positions = [write_position(position) for position in request.positions]
            return groups_pb2.GroupRequest(commit=groups_pb2.GroupCommit(number=request.number, positions=positions))
        case GroupReleased():
            return groups_pb2.GroupRequest(released=groups_pb2.GroupReleased(segments=request.segments))
        case GroupOpen():
            return groups_pb2.GroupRequest(open=write_open(request))
        case GroupLeave():
            return groups_pb2.GroupRequest(leave=groups_pb2.GroupLeave())


def decode_group_request(data: bytes) -> GroupRequest:
    """Decode a member's request.

    Raises:
        InvalidArgument: If the bytes are not such a request.
        Unsupported: If the request has a kind of a newer protocol, or none.
    """
    message = types.parse(groups_pb2.GroupRequest, data)
    match message.WhichOneof("request"):
        case "commit":
            positions = tuple(read_position(position) for position in message.commit.positions)
            return GroupCommit(message.commit.number, positions)
        case "released":
            return GroupReleased(dict(message.released.segments))
        case "open":
            return read_open(message.open)
        case "leave":
            return GroupLeave()
        case _:
            raise types.unknown_kind(message)


def encode_group_reply(reply: GroupReply) -> bytes:
    """Encode a coordinator's reply."""
    match reply:
        case GroupAssignment():
            message = groups_pb2.GroupReply(assignment=write_assignment(reply))
        case GroupCommitted():
            message = groups_pb2.GroupReply(
                committed=groups_pb2.GroupCommitted(number=reply.number, refused=reply.refused)
            )
    return message.SerializeToString()


def decode_group_reply(data: bytes) -> GroupReply:
    """Decode a coordinator's reply.

    Raises:
        InvalidArgument: If the bytes are not such a reply.
        Unsupported: If the reply has a kind of a newer protocol, or none.
    """
    message = types.parse(groups_pb2.GroupReply, data)
    match message.WhichOneof("reply"):
        case "assignment":
            return read_assignment(message.assignment)
        case "committed":
            return GroupCommitted(message.committed.number, dict(message.committed.refused))
        case _:
            raise types.unknown_kind(message)


# --- members and the coordinator ------------------------------------------------------------------------------------


def write_open(opening: GroupOpen) -> groups_pb2.GroupOpen:
    """Convert the first request of a member's stream to its message."""
    return groups_pb2.GroupOpen(
        group=opening.group,
        topic=str(opening.topic),
        member=opening.member,
        incarnation=opening.incarnation,
        start=write_start(opening.start),
        client=opening.client,
        held=opening.held,
        topic_uid=opening.topic_uid,
    )


def read_open(message: groups_pb2.GroupOpen) -> GroupOpen:
    """Convert the first message of a member's stream to its request.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return GroupOpen(
        group=message.group,
        topic=TopicName.parse(message.topic),
        member=message.member,
        incarnation=message.incarnation,
        start=read_start(message.start),
        client=message.client,
        held=dict(message.held),
        topic_uid=message.topic_uid,
    )


def write_position(position: Position) -> groups_pb2.Position:
    """Convert a committed position to its message."""
    return groups_pb2.Position(
        segment=position.segment,
        generation=position.generation,
        offset=position.offset,
        deliveries=position.deliveries,
    )


def read_position(message: groups_pb2.Position) -> Position:
    """Convert a message to a committed position.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return Position(
        segment=message.segment,
        generation=message.generation,
        offset=message.offset,
        deliveries=dict(message.deliveries),
    )


def write_assignment(assignment: GroupAssignment) -> groups_pb2.GroupAssignment:
    """Convert an assignment to its message."""
    return groups_pb2.GroupAssignment(
        generation=assignment.generation,
        owned=[
            groups_pb2.Ownership(
                segment=owned.segment,
                generation=owned.generation,
                start=write_start(owned.start),
                deliveries=owned.deliveries,
                crashes=owned.crashes,
            )
            for owned in assignment.owned
        ],
        trust_s=assignment.trust_s,
    )


def read_assignment(message: groups_pb2.GroupAssignment) -> GroupAssignment:
    """Convert a message to an assignment.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return GroupAssignment(
        generation=message.generation,
        owned=tuple(
            Ownership(
                segment=owned.segment,
                generation=owned.generation,
                start=read_start(owned.start),
                deliveries=dict(owned.deliveries),
                crashes=owned.crashes,
            )
            for owned in message.owned
        ),
        trust_s=message.trust_s if message.HasField("trust_s") else None,
    )


# --- administration -------------------------------------------------------------------------------------------------


def write_summary(summary: GroupSummary) -> groups_pb2.GroupSummary:
    """Convert a group's summary to its message."""
    return groups_pb2.GroupSummary(
        group=summary.group, topic=str(summary.topic), members=summary.members, generation=summary.generation
    )


def read_summary(message: groups_pb2.GroupSummary) -> GroupSummary:
    """Convert a message to a group's summary.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return GroupSummary(
        group=message.group,
        topic=TopicName.parse(message.topic),
        members=message.members,
        generation=message.generation,
    )


def write_description(description: GroupDescription) -> groups_pb2.GroupDescription:
    """Convert a group's description to its message."""
    return groups_pb2.GroupDescription(
        group=description.group, topics=[_write_topic(topic) for topic in description.topics]
    )


def read_description(message: groups_pb2.GroupDescription) -> GroupDescription:
    """Convert a message to a group's description.

    Raises:
        InvalidArgument: If a value is invalid.
    """
    return GroupDescription(group=message.group, topics=tuple(_read_topic(topic) for topic in message.topics))


def _write_topic(topic: GroupTopic) -> groups_pb2.GroupTopic:
    return groups_pb2.GroupTopic(
        topic=str(topic.topic),
        generation=topic.generation,
        start=write_start(topic.start),
        members=[
            groups_pb2.GroupMember(id=m.id, client=m.client, connected=m.connected, segments=m.segments)
            for m in topic.members
        ],
        segments=[
            groups_pb2.SegmentLag(
                segment=s.segment,
                owner=s.owner,
                committed=s.committed,
                end_offset=s.end_offset,
                lag_records=s.lag_records,
            )
            for s in topic.segments
        ],
        finished=topic.finished,
    )


def _read_topic(message: groups_pb2.GroupTopic) -> GroupTopic:
    return GroupTopic(
        topic=TopicName.parse(message.topic),
        generation=message.generation,
        start=read_start(message.start),
        members=tuple(
            GroupMember(id=m.id, client=m.client, connected=m.connected, segments=tuple(m.segments))
            for m in message.members
        ),
        segments=tuple(
            SegmentLag(
                segment=s.segment,
                owner=s.owner,
                committed=s.committed if s.HasField("committed") else None,
                end_offset=s.end_offset,
                lag_records=s.lag_records,
            )
            for s in message.segments
        ),
        finished=tuple(message.finished),
    )
