"""Error replies of a shard without the group's state machine, and the memory growth that a request causes."""

from seaweedmq.core.kafka.groups.classic_events import (
    Heartbeat,
    HeartbeatReply,
    Join,
    JoinReply,
    Leave,
    LeaveReply,
    Reply,
    Sync,
    SyncReply,
)
from seaweedmq.core.kafka.groups.classic_group import ClassicGroup
from seaweedmq.core.kafka.groups.classic_members import protocols_bytes
from seaweedmq.model.kafka.groups import GroupError


def group_error_reply(event: Join | Sync | Heartbeat | Leave, error: GroupError) -> Reply:
    """Return the error as the reply to this request."""
    match event:
        case Join():
            return JoinReply(token=event.token, member=event.member, error=error)
        case Sync():
            return SyncReply(token=event.token, error=error)
        case Heartbeat():
            return HeartbeatReply(event.token, error)
        case Leave():
            if error is GroupError.UNKNOWN_MEMBER_ID:  # a missing group has no member: one error for each
                return LeaveReply(event.token, members=tuple((leaving, error) for leaving in event.members))
            return LeaveReply(event.token, error)


def growth_bytes(event: Join | Sync | Heartbeat | Leave, group: ClassicGroup | None) -> int:
    """Return the largest growth of the group in bytes; zero or less if the request repeats an earlier one."""
    match event:
        case Join():
            return protocols_bytes(event.protocols) - (
                group.protocols_bytes_of(event.member) if group is not None else 0
            )
        case Sync() if event.assignments:
            before_bytes = group.assigned_bytes if group is not None else 0
            return sum(map(len, event.assignments.values())) - before_bytes
    return 0
