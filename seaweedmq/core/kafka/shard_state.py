"""All groups of one partition of ``__consumer_offsets``, and their offsets: what its coordinator knows and decides.

The shell (``kafka.shard``) loads what the partition holds, begins, and then hands over one event after another:

| step | what |
|---|---|
| ``load(record)`` | every record of the partition in order, tombstones too; later ones replace earlier ones |
| ``begin(now)`` | everything is loaded: sessions begin |
| ``handle(event, now, at_ms)`` | append ``records`` as one frame, say ``replies`` when all of it is committed |
| ``wake_at`` | when ``TimePassed`` is to be handled next |
| ``snapshot()`` | the records that give the same state again, to be appended from time to time |

The state is ahead of what is committed. If an append fails, all of it is to be dropped: the next coordinator loads what
was committed, and nobody was told of anything else.
"""

from collections.abc import Collection, Iterator, Mapping

from seaweedmq.core.kafka.classic_events import Limits, Partition, ShardEvent, ShardOutcome
from seaweedmq.model.kafka_groups import DescribedGroup, ListedGroup, OffsetValue, ShardRecord


class GroupShard:
    """``now`` is in seconds on a steady clock, ``at_ms`` the wall clock."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits

    @property
    def wake_at(self) -> float | None:
        """When ``TimePassed`` is to be handled; None: there is nothing to wait for."""
        raise NotImplementedError

    def load(self, record: ShardRecord) -> None:
        """Take what the partition holds."""
        raise NotImplementedError

    def begin(self, now: float) -> None:
        """All is loaded."""
        raise NotImplementedError

    def handle(self, event: ShardEvent, now: float, at_ms: int) -> ShardOutcome:
        """Take one event."""
        raise NotImplementedError

    def snapshot(self) -> Iterator[ShardRecord]:
        """What gives this state again. To be taken at once: it must not be changed meanwhile."""
        raise NotImplementedError

    def groups(self) -> tuple[ListedGroup, ...]:
        """All of them."""
        raise NotImplementedError

    def describe(self, group: str) -> DescribedGroup:
        """One that does not exist is ``DEAD``."""
        raise NotImplementedError

    def offsets(self, group: str, partitions: Collection[Partition] | None = None) -> Mapping[Partition, OffsetValue]:
        """What is committed, of these partitions or (None) of all. Those without an offset are left out."""
        raise NotImplementedError
