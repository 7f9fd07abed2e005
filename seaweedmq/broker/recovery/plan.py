"""Plans of a recovery: the condition of etcd, and the changes that bring it up to the storage."""

from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Delete, Put


class EtcdCondition(StrEnum):
    """Condition of etcd, compared with the storage."""

    IN_STEP = "in step"
    LOST = "lost"
    """Empty, or of a time before the cluster had an identity."""
    BEHIND = "behind"
    """Older than the storage has seen it, as after a restore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic as it will be."""

    topic: Topic
    segments: tuple[Segment, ...]
    """All of its segments by id, as etcd is to have them."""
    opened: tuple[int, ...]
    """Ids of new segments, which continue slots whose last segment has no known successor."""
    is_changed: bool
    """Whether etcd has it otherwise, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes that a recovery makes in etcd."""

    state: EtcdCondition
    cluster_id: str
    generation: int
    """Generation that etcd and the storage have afterwards."""
    topics: tuple[PlannedTopic, ...] = ()
    removed: tuple[TopicName, ...] = ()
    """Topics of etcd that were deleted since."""
    groups: tuple[tuple[TopicName, str], ...] = ()
    """Native groups, each with its topic."""
    journal: str = ""
    """Journal that the groups are from."""
    changes: tuple[Put | Delete, ...] = ()
    """Writes to etcd, in order, without the identity."""
    problems: tuple[str, ...] = ()
    """Reasons why nothing is written."""
    notes: tuple[str, ...] = ()
    """Findings that lose nothing."""
    brokers: tuple[str, ...] = ()
    """Registered brokers, ``id at host:port``: nothing is written while there are any."""

    @property
    def is_due(self) -> bool:
        """Whether there is anything to do."""
        return self.state is not EtcdCondition.IN_STEP
