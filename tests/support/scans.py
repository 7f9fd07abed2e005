"""Scans of a topic's files with the columns and types that Spark gets, without Spark running."""

from collections.abc import Sequence
from pathlib import Path

from seaweedmq.model.topic import Topic
from seaweedmq.spark.column_types import arrow_schema
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.window import Interval
from seaweedmq.storage.scan.columns import columns_of
from seaweedmq.storage.scan.range_scan import RangeScan


def scan_of(
    root: Path | Place | None, topic: Topic, chosen: Sequence[str] | None = None, timestamps: Interval | None = None
) -> RangeScan:
    columns = columns_of(topic, chosen)
    return RangeScan(
        place=DirectoryPlace(root) if isinstance(root, Path) else root,
        topic=topic,
        timestamps=timestamps or Interval(),
        columns=columns,
        schema=arrow_schema(columns),
    )
