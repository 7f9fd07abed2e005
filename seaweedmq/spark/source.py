"""The data source as Spark's Python API wants it: a thin shell around options, partitions and scan.

Spark pickles these by reference: drivers and executors need ``seaweedmq`` installed, and nothing else of ours.
"""

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.topic import Topic
from seaweedmq.spark.columns import KEY, OFFSET, PARTITION, SEGMENT, TIMESTAMP, Column, columns_of, spark_schema
from seaweedmq.spark.options import (
    ColumnOptions,
    SparkOptions,
    TopicLocation,
    check_names,
    parse_options,
    parse_place,
    parse_shown,
)
from seaweedmq.spark.partitions import Partition, Sharing, plan_partitions
from seaweedmq.spark.scan import Scan
from seaweedmq.spark.streams.stream_options import parse_stream_options
from seaweedmq.spark.times import with_times
from seaweedmq.storage.plan.named_offsets import refuse_beyond
from seaweedmq.storage.plan.scan_ranges import BrokerOffsets
from seaweedmq.storage.plan.window import ReadWindow
from seaweedmq.storage.snapshot import TopicSnapshot, read_snapshot, read_topic
from seaweedmq.storage.store.files import open_store

if TYPE_CHECKING:
    from seaweedmq.spark.streams.stream import SeaweedMQStreamReader
    from seaweedmq.spark.write.sink import BatchSink, StreamSink

FORMAT = "seaweedmq"
_PUSHED = {OFFSET: "offset", TIMESTAMP: "timestamp", SEGMENT: "segment", PARTITION: "partition", KEY: "key"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSource:
    """A topic as it is at one moment."""

    root: Path | None
    snapshot: TopicSnapshot
    known: BrokerOffsets | None
    """Of the brokers, if they were asked."""


class SeaweedMQSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """``spark.read.format("seaweedmq")``: what was written of one topic, each record once."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._given = check_names(options)  # which face is called is not known yet

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> "BatchSink":
        # here, not above: every worker that reads would import a client that it does not need
        from seaweedmq.spark.write.sink import batch_sink

        return batch_sink(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamSink":  # noqa: N802 - Spark's name
        from seaweedmq.spark.write.sink import stream_sink

        # All options: the checkpoint's location among them tells a copied checkpoint from a repeat.
        return stream_sink(dict(self.options), schema, overwrite)

    def schema(self) -> StructType:
        topic = find(parse_place(self._given), ends=False).snapshot.topic
        return spark_schema(chosen_columns(topic, parse_shown(self._given)))

    def reader(self, schema: StructType) -> "SeaweedMQReader":
        options = parse_options(self._given)
        # Stretches that were planned before are committed: how far the brokers are now is of no matter.
        found = find(options.place, ends=options.window.ranges is None)
        if options.window.ranges is not None and options.place.bootstrap is not None:
            ends = {number: parts[-1][1] for number, parts in options.window.ranges.items()}
            found = replace(found, known=BrokerOffsets(begins={}, ends=ends, is_all=found.root is None))
        columns = chosen_columns(found.snapshot.topic, options.shown)
        _check_schema(found.snapshot.topic, schema, columns)
        return SeaweedMQReader(found, options, columns)

    def streamReader(self, schema: StructType) -> "SeaweedMQStreamReader":  # noqa: N802 - Spark's name
        try:
            from seaweedmq.spark.streams.stream import SeaweedMQStreamReader
        except ImportError as e:
            raise Unsupported(f"streaming needs pyspark>=4.2: pip install 'pyspark>=4.2,<5' ({e})") from e
        options = parse_stream_options(self._given)
        root = open_store(options.storage).root
        topic = read_topic(root, options.topic)
        columns = chosen_columns(topic, options.shown)
        _check_schema(topic, schema, columns)
        return SeaweedMQStreamReader(root, options, topic, columns)


class SeaweedMQReader(DataSourceReader):  # type: ignore[misc]
    """Plans in the driver, reads on executors. Filters only prune: Spark applies them again."""

    def __init__(self, found: TopicSource, options: SparkOptions, columns: tuple[Column, ...]) -> None:
        self._found = found
        self._options = options
        self._window: ReadWindow = options.window
        self._columns = columns

    @property
    def pushFilters(self) -> "_Pushing":  # noqa: N802 - Spark's name
        return _Pushing(self._take_filters)

    def _take_filters(self, filters: list[Filter]) -> Iterable[Filter]:
        has_ring = self._found.snapshot.topic.partitions is None
        names = {
            c.name: _PUSHED[c.source] for c in self._columns if c.source in _PUSHED and (has_ring or c.source != KEY)
        }
        self._window = self._window.narrowed(filters, names)
        return filters

    def partitions(self) -> list[InputPartition]:
        found, options = self._found, self._options
        partitions = plan_partitions(
            found.root,
            found.snapshot,
            window_of(found, options, self._window),
            known=found.known,
            sharing=Sharing(partitions_min=options.min_partitions, records_max=options.records_max),
            fail_on_data_loss=options.fail_on_data_loss,
        )
        return list(partitions) or [Partition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Partition):
            raise AssertionError(f"Spark gave {partition!r} back, which is no partition of ours")
        scan = Scan(
            root=self._found.root,
            topic=self._found.snapshot.topic,
            timestamps=self._window.timestamps,
            columns=self._columns,
            bootstrap=self._options.place.bootstrap,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return scan.read(partition.pieces)

    def __getstate__(self) -> dict[str, object]:
        """Without the list of all segments and files, which goes to every task: a partition names its own."""
        snapshot = replace(self._found.snapshot, segments=(), files=(), removed={})
        return {**self.__dict__, "_found": replace(self._found, snapshot=snapshot, known=None)}


class _Pushing:
    """Takes filters where Spark pushes some. Where it does not, which is so until somebody turns it on, Spark refuses
    every reader whose method is not that of the base class: so this one says that it is, and the read is not pruned."""

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, take: Callable[[list[Filter]], Iterable[Filter]]) -> None:
        self._take = take

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._take(filters)


def find(place: TopicLocation, *, ends: bool) -> TopicSource:
    """Look at the files, and ask the brokers if there are some.

    Args:
        ends: whether brokers are asked how far the segments are, too.

    Raises:
        InvalidArgument: there is no such storage, or it is not that of the brokers.
        NotFound: no such topic. Unavailable: no broker answers.
    """
    root = None if place.storage is None else open_store(place.storage).root
    if place.bootstrap is None:
        if root is None:
            raise AssertionError("a read has a storage, or brokers")
        return TopicSource(root=root, snapshot=read_snapshot(root, place.topic), known=None)
    # Imported here: a read of files alone needs no network.
    from seaweedmq.spark import live

    known = None
    if ends:
        told = live.ask(place.bootstrap, place.topic)
        description, known = told.description, BrokerOffsets(begins=told.begins, ends=told.ends, is_all=root is None)
    else:
        description = live.describe(place.bootstrap, place.topic)
    # Files are listed after the brokers said how far they are: what is in neither did not exist then.
    listed = None if root is None else read_snapshot(root, place.topic, [s.id for s in description.segments])
    if listed is not None and listed.topic.uid != description.topic.uid:
        raise InvalidArgument(
            f"topic {place.topic} in storage {root} is another one than the brokers at {place.bootstrap} have: give "
            "the storage that they were started with"
        )
    files = () if listed is None else listed.files
    removed = {} if listed is None else listed.removed
    return TopicSource(
        root=root,
        snapshot=TopicSnapshot(topic=description.topic, segments=description.segments, files=files, removed=removed),
        known=known,
    )


def chosen_columns(topic: Topic, shown: ColumnOptions) -> tuple[Column, ...]:
    """The columns of the result. Raises InvalidArgument, Unsupported: as ``columns.columns_of``."""
    return columns_of(topic, shown.columns, include_headers=shown.include_headers)


def _check_schema(topic: Topic, schema: StructType, columns: tuple[Column, ...]) -> None:
    if schema != spark_schema(columns):
        raise InvalidArgument(
            f"the schema asked for is not that of topic {topic.name}: leave out .schema(...), use the option "
            "'columns' to choose; if the topic was made anew meanwhile, load() again"
        )


def window_of(found: TopicSource, options: SparkOptions, window: ReadWindow) -> ReadWindow:
    """The window, with offsets for the times that stand in for them.

    Raises:
        OutOfRange: an offset is named beyond the end of its segment, and that is a loss of data.
        InvalidArgument, Corrupt, StorageFailed, Unavailable: as ``named_offsets`` and ``times``.
    """
    if options.fail_on_data_loss:
        refuse_beyond(window, found.root, found.snapshot, found.known)
    return with_times(
        window,
        options.starting_times,
        options.ending_times,
        found.root,
        found.snapshot,
        found.known,
        options.place.bootstrap,
    )
