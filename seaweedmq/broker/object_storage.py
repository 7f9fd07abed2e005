"""The bundles and log objects of all open segments of one broker incarnation."""

from collections.abc import Callable, Sequence

from seaweedmq.broker.bundles.bundler import Bundler
from seaweedmq.broker.bundles.segment_objects import SegmentObjects
from seaweedmq.broker.segment.sink import OpenedSink, SinkEvents
from seaweedmq.core.files.rolling import roll_bounds
from seaweedmq.core.segment.object_lifecycle import ObjectLifecycle
from seaweedmq.core.segment.segment_lifecycle import Action
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic


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
