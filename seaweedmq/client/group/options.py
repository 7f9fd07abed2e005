"""The checked options of a group member."""

from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName, check_name

MAX_UNACKED = 100_000
"""Default limit of a member's unacknowledged records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The group and acknowledgement options of a member: see ``Client.subscriber``."""

    group: str
    member: str | None = None
    auto_ack: bool = False
    max_deliveries: int | None = None
    dead_letter: TopicName | None = None
    max_unacked: int = MAX_UNACKED

    def __post_init__(self) -> None:
        if self.max_unacked < 1:
            raise InvalidArgument(
                f"max_unacked={self.max_unacked} is below 1: set how many records may be unacknowledged"
            )
        if self.max_deliveries is not None and self.max_deliveries < 1:
            raise InvalidArgument(
                f"max_deliveries={self.max_deliveries} is below 1: set how often a record is delivered"
            )
        if self.dead_letter is not None and self.max_deliveries is None:
            raise InvalidArgument("dead_letter= needs max_deliveries=: set the deliveries before a record goes there")
        check_name("group", self.group)
        if self.member is not None:
            check_name("member", self.member)
