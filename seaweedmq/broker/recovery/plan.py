"""Recovery plans: the condition of etcd, and the changes that bring it in step with the storage."""

from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Delete, Put


class EtcdCondition(StrEnum):
    """The condition of etcd, compared with the storage."""

    IN_STEP = "in step"
    LOST = "lost"
    """Empty, or older than the identity of the cluster."""
    BEHIND = "behind"
    """Older than the revision recorded in the storage, as after a restore."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTopic:
    """A topic after the recovery."""

    topic: Topic
    segments: tuple[Segment, ...]
    """All segments of the topic, ordered by id, as the recovery writes them to etcd."""
    opened: tuple[int, ...]
    """The ids of new segments, which continue slots whose last segment has no known successor."""
    is_changed: bool
    """Whether etcd lacks the topic or has it in another state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The changes that a recovery makes in etcd."""

    state: EtcdCondition
    cluster_id: str
    generation: int
    """The generation of etcd and the storage after the recovery."""
    topics: tuple[PlannedTopic, ...] = ()
    removed: tuple[TopicName, ...] = ()
    """The topics in etcd that were deleted in the storage."""
    groups: tuple[tuple[TopicName, str], ...] = ()
    """The native groups, each with its topic."""
    journal: str = ""
    """The journal that the groups were read from."""
    changes: tuple[Put | Delete, ...] = ()
    """The writes to etcd, in order, without the identity."""
    problems: tuple[str, ...] = ()
    """The reasons why nothing is written; empty if there is none."""
    notes: tuple[str, ...] = ()
    """The findings that lose nothing."""
    brokers: tuple[str, ...] = ()
    """The registered brokers, as ``id at host:port``. Nothing is written while there are any."""

    @property
    def is_due(self) -> bool:
        """Whether etcd needs the recovery."""
        return self.state is not EtcdCondition.IN_STEP
