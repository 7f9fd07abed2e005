"""Encoding of the messages of the Groups service: the stream of a member."""

from seaweedmq.model.messages.groups import (
    GroupAssignment,
    GroupCommit,
    GroupCommitted,
    GroupLeave,
    GroupOpen,
    GroupReleased,
    GroupReply,
    GroupRequest,
)
from seaweedmq.rpc.messages.oneof import OneofCodec, RequestCodec
from seaweedmq.rpc.v1 import groups_pb2

_REQUEST = RequestCodec[GroupRequest](
    groups_pb2.GroupRequest,
    {"open": GroupOpen, "commit": GroupCommit, "released": GroupReleased, "leave": GroupLeave},
)
_REPLY = OneofCodec[GroupReply](groups_pb2.GroupReply, {"assignment": GroupAssignment, "committed": GroupCommitted})

encode_group_request, decode_group_request = _REQUEST.encode, _REQUEST.decode
encode_group_reply, decode_group_reply = _REPLY.encode, _REPLY.decode
