"""Data source for Spark's Python API: a thin layer over options, partitions and scan.

Spark pickles these classes by reference: drivers and executors need ``seaweedmq`` installed, and nothing else from it.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.topic import Topic
from seaweedmq.spark.column_types import arrow_schema, spark_schema
from seaweedmq.spark.filters import narrowed
from seaweedmq.spark.options import SparkOptions, check_names, parse_location, parse_options, parse_shown
from seaweedmq.spark.payloads import reference_metadata, with_metadata
from seaweedmq.spark.streams.stream_options import parse_stream_options
from seaweedmq.spark.topic_access import broker_reader, chosen_columns, find
from seaweedmq.storage.place import Place
from seaweedmq.storage.plan.partitions import Sharing, plan_partitions
from seaweedmq.storage.plan.scan_ranges import ScanRange
from seaweedmq.storage.plan.topic_source import BrokerOffsets, TopicSource
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.scan.columns import KEY, OFFSET, PARTITION, SEGMENT, TIMESTAMP, Column
from seaweedmq.storage.scan.range_scan import RangeScan
from seaweedmq.storage.snapshot import read_topic

if TYPE_CHECKING:
    from seaweedmq.spark.streams.stream import SeaweedMQStreamReader
    from seaweedmq.spark.write.sink import BatchSink, StreamSink

FORMAT = "seaweedmq"
_PUSHED = {OFFSET: "offset", TIMESTAMP: "timestamp", SEGMENT: "segment", PARTITION: "partition", KEY: "key"}


class SeaweedMQSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """The data source ``seaweedmq``: the records of one topic, each once."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = check_names(options)  # the called API is not known yet

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "BatchSink":
        """Return a writer for one write."""
        # Lazy import: otherwise every worker that reads would import a client that it does not need.
        from seaweedmq.spark.write.sink import batch_sink

        return batch_sink(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamSink":  # noqa: N802 - Spark's name
        """Return a writer for all batches of a query."""
        from seaweedmq.spark.write.sink import stream_sink

        # All options: the checkpoint's location among them distinguishes a copied checkpoint from a repeat.
        return stream_sink(dict(self.options), schema, overwrite)

    def schema(self) -> StructType:
        """Return the schema of the chosen columns."""
        location = parse_location(self._given)
        topic = find(location, ends=False).snapshot.topic
        schema = spark_schema(chosen_columns(topic, parse_shown(self._given)))
        return with_metadata(schema, reference_metadata(topic, location.storage))

    def reader(self, schema: StructType) -> "SeaweedMQReader":
        """Return a reader for one batch read."""
        options = parse_options(self._given)
        # Planned ranges are committed, so the brokers' current end offsets do not matter.
        found = find(options.location, ends=options.window.ranges is None)
        if options.window.ranges is not None and options.location.bootstrap is not None:
            ends = {number: parts[-1][1] for number, parts in options.window.ranges.items()}
            found = replace(found, known=BrokerOffsets(begins={}, ends=ends, is_all=found.place is None))
        columns = chosen_columns(found.snapshot.topic, options.shown)
        _check_schema(found.snapshot.topic, schema, columns)
        return SeaweedMQReader(found, options, columns)

    def streamReader(self, schema: StructType) -> "SeaweedMQStreamReader":  # noqa: N802 - Spark's name
        """Return a reader for a stream. Raises Unsupported before PySpark 4.2."""
        try:
            from seaweedmq.spark.streams.stream import SeaweedMQStreamReader
        except ImportError as e:
            raise Unsupported(f"streaming needs pyspark>=4.2: pip install 'pyspark>=4.2,<5' ({e})") from e
        options = parse_stream_options(self._given)
        place = Place.parse(options.storage)
        topic = read_topic(place, options.topic)
        columns = chosen_columns(topic, options.shown)
        _check_schema(topic, schema, columns)
        return SeaweedMQStreamReader(place, options, topic, columns)


class Partition(InputPartition):  # type: ignore[misc]
    """The scan ranges that one task reads, in order."""

    def __init__(self, ranges: tuple[ScanRange, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges


class SeaweedMQReader(DataSourceReader):  # type: ignore[misc]
    """The reader that plans in the driver and reads on executors. Filters only prune: Spark applies them again."""

    def __init__(self, found: TopicSource, options: SparkOptions, columns: tuple[Column, ...]) -> None:
        self._found = found
        self._options = options
        self._window: ReadWindow = options.window
        self._columns = columns

    @property
    def pushFilters(self) -> "_Pushing":  # noqa: N802 - Spark's name
        """The callable that takes Spark's filters."""
        return _Pushing(self._take_filters)

    def _take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        has_ring = self._found.snapshot.topic.partitions is None
        names = {
            c.name: _PUSHED[c.source] for c in self._columns if c.source in _PUSHED and (has_ring or c.source != KEY)
        }
        self._window = narrowed(self._window, filters, names)
        return filters

    def partitions(self) -> list[InputPartition]:
        """Plan the read; an empty read has one empty partition."""
        options = self._options
        parts = plan_partitions(
            self._found,
            self._window,
            sharing=Sharing(partitions_min=options.min_partitions, records_max=options.records_max),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return [Partition(part) for part in parts or [()]]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition, on an executor."""
        assert isinstance(partition, Partition), f"Spark returned {partition!r}, which is not a Partition"
        scan = RangeScan(
            place=self._found.place,
            topic=self._found.snapshot.topic,
            timestamps=self._window.timestamps,
            columns=self._columns,
            schema=arrow_schema(self._columns),
            brokers=broker_reader(self._options.location, fail_on_data_loss=self._options.fail_on_data_loss),
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return scan.read(partition.ranges)

    def __getstate__(self) -> dict[str, object]:
        """Drop the list of all segments and files: it would go to every task, whose partition names its own files."""
        snapshot = replace(self._found.snapshot, segments=(), files=(), removed={})
        return {**self.__dict__, "_found": replace(self._found, snapshot=snapshot, known=None)}


class _Pushing:
    """A callable that takes filters, and that Spark accepts if filter push-down is disabled, its default.

    While push-down is disabled, Spark rejects every reader whose method is not the base class's. This object claims to
    be that method, and such a read is not pruned.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


def _check_schema(topic: Topic, schema: StructType, columns: tuple[Column, ...]) -> None:
    if with_metadata(schema, {}) != spark_schema(columns):
        raise InvalidArgument(
            f"the requested schema is not that of topic {topic.name}: leave out .schema(...), use the option "
            "'columns' to choose; if the topic was recreated meanwhile, load() again"
        )
