"""Errors of a group that end a member's stream."""

from seaweedmq.errors import Fenced, ResourceExhausted


def fenced(member: str) -> Fenced:
    """Return the error for a member whose id another subscriber took over."""
    return Fenced(
        f"another subscriber joined the group as member {member}: stop this one, or give each a member id of its own"
    )


def too_many_members(members_max: int) -> ResourceExhausted:
    """Return the error for a member beyond the limit."""
    return ResourceExhausted(f"the group has {members_max} members, its limit: use fewer, or raise group_members_max")
