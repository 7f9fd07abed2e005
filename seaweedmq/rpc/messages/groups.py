"""Encoding of the messages of the Groups service: the stream of a member."""

from seaweedmq.model.messages import groups
from seaweedmq.rpc.messages.oneof import OneofCodec, RequestCodec
from seaweedmq.rpc.v1 import groups_pb2

_REQUEST = RequestCodec[groups.GroupRequest](
    groups_pb2.GroupRequest,
    {
        "open": groups.GroupOpen,
        "commit": groups.GroupCommit,
        "released": groups.GroupReleased,
        "leave": groups.GroupLeave,
    },
)
_REPLY = OneofCodec[groups.GroupReply](
    groups_pb2.GroupReply, {"assignment": groups.GroupAssignment, "committed": groups.GroupCommitted}
)

encode_group_request, decode_group_request = _REQUEST.encode, _REQUEST.decode
encode_group_reply, decode_group_reply = _REPLY.encode, _REPLY.decode
