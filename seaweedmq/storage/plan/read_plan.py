"""Plan of a read: the scan ranges that hold the requested records of a topic."""

from seaweedmq.storage.plan.named_offsets import reject_beyond_end
from seaweedmq.storage.plan.scan_ranges import ScanRange, plan_ranges
from seaweedmq.storage.plan.time_offsets import with_offsets
from seaweedmq.storage.plan.topic_source import TopicSource
from seaweedmq.storage.plan.window import ReadWindow


def plan_read(source: TopicSource, window: ReadWindow, *, fail_on_data_loss: bool = True) -> list[ScanRange]:
    """Return the scan ranges of a window: :func:`scan_ranges.plan_ranges`, with offsets in place of times.

    Raises OutOfRange if an offset is named beyond the end of its segment, or requested offsets were removed;
    InvalidArgument if offsets are given for a segment that does not exist; DataLoss if records are lost; Unavailable if
    no broker answers.
    """
    if fail_on_data_loss:
        reject_beyond_end(window, source)
    window = with_offsets(window, source)
    return plan_ranges(source.snapshot, window, source.known, fail_on_data_loss=fail_on_data_loss)
