"""The bundles and log objects of all open segments of one broker incarnation."""

import asyncio
from collections.abc import Callable, Sequence

from seaweedmq.broker.bundles.bundler import Bundler
from seaweedmq.broker.bundles.segment_objects import SegmentObjects
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.sink import OpenedSink, SinkEvents
from seaweedmq.core.files.rolling import roll_bounds
from seaweedmq.core.segment.bundle_ledger import LedgerLimits
from seaweedmq.core.segment.memory_rule import must_bundle
from seaweedmq.core.segment.segment_lifecycle import Action, ObjectLifecycle
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import AlreadyExists
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import Environment, Objects
from seaweedmq.storage.bundles.entries import SequenceEntries, begin_sequence

CHECK_SHARE = 0.05
"""Pause between two looks at the lease of a follower, as a share of its TTL."""


async def new_broker_id(objects: Objects | None, env: Environment) -> str:
    """Return an id that no broker had; on an object store, with the first entry of its sequence.

    Raises StorageFailed if the entry may or may not exist now: the id is not used.
    """
    while True:
        broker_id = f"b-{env.rng.getrandbits(32):08x}"
        if objects is None:
            return broker_id
        try:
            await begin_sequence(SequenceEntries(objects, broker_id), rng=env.rng, wall_us=env.wall_us())
        except AlreadyExists:
            continue
        return broker_id


def ledger_limits(memory: MemoryBudget) -> LedgerLimits:
    """Return the limits of rolls: frames that no log object has fill up to half of the memory for logs."""
    return LedgerLimits(pinned_bytes_max=min(LedgerLimits().pinned_bytes_max, memory.limit // 2))


async def bundle_in_doubt(hurry: Callable[[], None], lease_left_s: Callable[[], float], ttl_s: float) -> None:
    """Have a follower bundle what it holds while its lease has less than the margin left, until cancelled."""
    while True:
        if must_bundle(lease_left_s=lease_left_s(), ttl_s=ttl_s):
            hurry()
        await asyncio.sleep(CHECK_SHARE * ttl_s)


class ObjectStorage:
    """The records of one broker incarnation in an object store: a ``sink.SegmentStorage``."""

    def __init__(
        self,
        bundler: Bundler,
        config: BrokerConfig,
        *,
        lease_left_s: Callable[[], float],
        provenance: Callable[[Segment], Sequence[Segment]],
    ) -> None:
        """Create the storage.

        Args:
            bundler: The sequence of this incarnation.
            config: Settings of the broker.
            lease_left_s: Function that returns the seconds for which the lease surely lives, 0 or less if that is
                uncertain.
            provenance: Function that returns the segments that log objects record: see ``core.lineage``.
        """
        self._bundler = bundler
        self._config = config
        self._lease_left_s = lease_left_s
        self._provenance = provenance

    def open(self, topic: Topic, segment: Segment, log: SegmentLog, events: SinkEvents) -> OpenedSink:
        """Prepare the bundles of a segment."""
        lifecycle = ObjectLifecycle(segment, log)

        def on_progress() -> None:
            if sink.has_ended:
                events.on_actions(lifecycle.sequence_ended())
            events.on_progress()

        sink = SegmentObjects(
            topic,
            segment,
            log,
            bundler=self._bundler,
            lineage=lambda: self._provenance(segment),
            roll_bytes=roll_bounds(topic, self._config).size_bytes,
            on_progress=on_progress,
        )

        def advance() -> Sequence[Action]:
            return lifecycle.advanced(
                lease_left_s=self._lease_left_s(), ttl_s=self._config.lease_ttl_s, unflushed_s=sink.unflushed_s
            )

        return OpenedSink(sink=sink, lifecycle=lifecycle, advance=advance)
