"""Numbers of open segments by broker."""

from collections import Counter
from collections.abc import Mapping, Sequence

from seaweedmq.model.segment import Segment


class OpenCounts:
    """The numbers of open segments, by replica and by primary. A broker without segments is in neither."""

    def __init__(self) -> None:
        self._carried: Counter[str] = Counter()
        self.carried: Mapping[str, int] = self._carried
        """Number of segments by replica."""
        self._led: Counter[str] = Counter()
        self.led: Mapping[str, int] = self._led
        """Number of segments by primary."""

    def add(self, segment: Segment) -> None:
        """Count a segment for its brokers."""
        self._carried.update(segment.replicas)
        self._led[segment.primary] += 1

    def remove(self, segment: Segment) -> None:
        """Undo :meth:`add`."""
        _subtract(self._carried, segment.replicas)
        _subtract(self._led, (segment.primary,))


def _subtract(counts: Counter[str], brokers: Sequence[str]) -> None:
    counts.subtract(brokers)
    for broker in brokers:
        if not counts[broker]:
            del counts[broker]
