"""Access to a topic as options locate it: its files and, if the options name some, its brokers."""

from collections.abc import Iterator, Mapping
from functools import partial

import pyarrow as pa

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.spark.column_types import spark_schema
from seaweedmq.spark.options import ColumnOptions, TopicLocation
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.plan.topic_source import BrokerOffsets, TopicSource
from seaweedmq.storage.scan.columns import Column, columns_of
from seaweedmq.storage.scan.range_scan import BrokerReader
from seaweedmq.storage.snapshot import TopicSnapshot, read_snapshot


def find(location: TopicLocation, *, ends: bool) -> TopicSource:
    """List the files of a topic, and query the brokers if there are some.

    With ``ends``, brokers also report the end offsets of segments.

    Raises:
        InvalidArgument: If the storage does not exist, or is not the brokers' storage.
        NotFound: If no such topic exists.
        Unavailable: If no broker answers.
    """
    place = None if location.storage is None else parse_place(location.storage)
    if location.bootstrap is None:
        assert place is not None, "a read has a storage, or brokers"
        return TopicSource(place=place, snapshot=read_snapshot(place, location.topic))
    # Lazy import: file-only reads need no network.
    from seaweedmq.spark import live

    known = None
    if ends:
        live_topic = live.ask(location.bootstrap, location.topic)
        description, known = (
            live_topic.description,
            BrokerOffsets(begins=live_topic.begins, ends=live_topic.ends, is_all=place is None),
        )
    else:
        description = live.describe(location.bootstrap, location.topic)
    # List files after the brokers reported their end offsets: what is in neither did not exist then.
    listed = None if place is None else read_snapshot(place, location.topic, [s.id for s in description.segments])
    if listed is not None and listed.topic.uid != description.topic.uid:
        raise InvalidArgument(
            f"topic {location.topic} in storage {place} is not the topic of the brokers at {location.bootstrap}: give "
            "the storage that they use"
        )
    files = () if listed is None else listed.files
    removed = {} if listed is None else listed.removed
    return TopicSource(
        place=place,
        snapshot=TopicSnapshot(topic=description.topic, segments=description.segments, files=files, removed=removed),
        known=known,
        search=partial(_offsets_at, location.bootstrap, location.topic),
    )


def _offsets_at(bootstrap: str, topic: TopicName, times: Mapping[int, tuple[int, int]]) -> Mapping[int, int]:
    # Lazy import: file-only reads need no network.
    from seaweedmq.spark.live import offsets_at

    return offsets_at(bootstrap, topic, times)


def broker_reader(location: TopicLocation, *, fail_on_data_loss: bool) -> BrokerReader | None:
    """Return the reader of what only brokers hold; None if the options name none."""
    if location.bootstrap is None:
        return None
    bootstrap = location.bootstrap

    def read(segment: int, start: int | None, end: int) -> Iterator[pa.RecordBatch]:
        # Lazy import: file-only reads need no network.
        from seaweedmq.spark.live import read_range

        return read_range(bootstrap, location.topic, segment, start, end, "fail" if fail_on_data_loss else "skip")

    return read


def chosen_columns(topic: Topic, shown: ColumnOptions) -> tuple[Column, ...]:
    """Return the columns of the result; InvalidArgument for an unknown one, Unsupported for a type that Spark lacks."""
    columns = columns_of(
        topic,
        shown.columns,
        include_headers=shown.include_headers,
        include_references=shown.include_references,
    )
    spark_schema(columns)
    return columns
