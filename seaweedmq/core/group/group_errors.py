"""What a member is told that the group does not take, or not any more."""

from seaweedmq.errors import Fenced, ResourceExhausted


def fenced(member: str) -> Fenced:
    """Its id was taken over."""
    return Fenced(
        f"another subscriber joined the group as member {member}: stop this one, or give each a member id of its own"
    )


def too_many_members(members_max: int) -> ResourceExhausted:
    """There is no room for one more."""
    return ResourceExhausted(
        f"the group has {members_max} members, no more are allowed: use fewer, or raise group_members_max"
    )
