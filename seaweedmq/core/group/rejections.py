"""Rejections of a group: errors that end a member's stream, and reasons against a commit."""

from seaweedmq.errors import Fenced, ResourceExhausted
from seaweedmq.model.group_record import SegmentOwner
from seaweedmq.model.messages.groups import Position


def fenced(member: str) -> Fenced:
    """Return the error for a member whose id another subscriber took over."""
    return Fenced(
        f"another subscriber joined the group as member {member}: stop this one, or give each a member id of its own"
    )


def too_many_members(members_max: int) -> ResourceExhausted:
    """Return the error for a member beyond the limit."""
    return ResourceExhausted(f"the group has {members_max} members, its limit: use fewer, or raise group_members_max")


def reject_commit(member: str, position: Position, owner: SegmentOwner | None, end_offset: int) -> str | None:
    """Return the reason why a member may not commit a position, at most ``end_offset``; None if it may."""
    if owner is None or owner.member != member:
        return f"segment {position.segment} no longer belongs to {member}: stop reading it"
    if owner.generation != position.generation:
        return (
            f"segment {position.segment} was read in generation {position.generation}, which is over "
            f"(now: {owner.generation}): stop reading it, and begin again when it is reassigned"
        )
    if owner.void:
        return (
            f"segment {position.segment} was read before the group was reset: stop reading it, and begin again "
            "when it is reassigned"
        )
    if position.offset > end_offset:
        return (
            f"offset {position.offset} lies beyond the end of segment {position.segment}, {end_offset}: "
            "commit only records that were read"
        )
    return None
