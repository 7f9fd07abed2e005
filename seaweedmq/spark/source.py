"""The data source as Spark's Python API wants it: a thin shell around options, partitions and scan.

Spark pickles these by reference: drivers and executors need ``seaweedmq`` installed, and nothing else of ours.
"""

from collections.abc import Iterable, Iterator, MutableMapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from seaweedmq.errors import InvalidArgument
from seaweedmq.spark.columns import OFFSET, SEGMENT, TIMESTAMP, Column, columns_of, spark_schema
from seaweedmq.spark.options import parse_options
from seaweedmq.spark.partitions import Partition, plan_partitions
from seaweedmq.spark.scan import Scan
from seaweedmq.spark.window import ReadWindow
from seaweedmq.storage.snapshot import TopicSnapshot, read_snapshot
from seaweedmq.storage.store.files import open_store

FORMAT = "seaweedmq"
_PUSHED = {OFFSET: "offset", TIMESTAMP: "timestamp", SEGMENT: "segment"}


class SeaweedMQSource(DataSource):  # type: ignore[misc]  # pyspark is not typed here
    """``spark.read.format("seaweedmq")``: what was written of one topic, each record once."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read = parse_options(options)
        self._root = open_store(self._read.storage).root

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        snapshot = read_snapshot(self._root, self._read.topic)
        return spark_schema(columns_of(snapshot.topic, self._read.columns))

    def reader(self, schema: StructType) -> "SeaweedMQReader":
        snapshot = read_snapshot(self._root, self._read.topic)
        columns = columns_of(snapshot.topic, self._read.columns)
        if schema != spark_schema(columns):
            raise InvalidArgument(
                f"the schema asked for is not that of topic {self._read.topic}: leave out .schema(...), use the option "
                "'columns' to choose; if the topic was made anew meanwhile, load() again"
            )
        return SeaweedMQReader(self._root, snapshot, self._read.window, columns)


class SeaweedMQReader(DataSourceReader):  # type: ignore[misc]
    """Plans in the driver, reads on executors. Filters only prune: Spark applies them again."""

    def __init__(self, root: Path, snapshot: TopicSnapshot, window: ReadWindow, columns: tuple[Column, ...]) -> None:
        self._root = root
        self._snapshot = snapshot
        self._window = window
        self._columns = columns

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        names = {c.name: _PUSHED[c.source] for c in self._columns if c.source in _PUSHED}
        self._window = self._window.narrowed(filters, names)
        return filters

    def partitions(self) -> list[InputPartition]:
        return list(plan_partitions(self._root, self._snapshot, self._window)) or [Partition(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, Partition):
            raise AssertionError(f"Spark gave {partition!r} back, which is no partition of ours")
        scan = Scan(
            root=self._root, topic=self._snapshot.topic, timestamps=self._window.timestamps, columns=self._columns
        )
        return scan.read(partition.pieces)

    def __getstate__(self) -> dict[str, object]:
        """Without the list of all segments and files, which goes to every task: a partition names its own."""
        return {**self.__dict__, "_snapshot": replace(self._snapshot, segments=(), files=())}
