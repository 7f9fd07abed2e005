"""Stream reader behind ``spark.readStream.format("seaweedmq")``.

The driver plans micro-batches, and executors read them. The driver's part lives in a process of its own while the query
runs, and Spark calls it a hundred times a second when the stream is idle. Needs PySpark 4.2.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxFiles,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from seaweedmq.core.files.batch_limits import ByteLimit, FileLimit
from seaweedmq.core.files.snapshot import SnapshotPiece, plan_snapshot
from seaweedmq.core.lineage.batch_ranges import FrontierDiff, Range, between, cut, tasks
from seaweedmq.core.lineage.frontier import (
    SERIAL_RECORDS_MAX,
    BatchLimit,
    Frontier,
    LineageGraph,
    RecordLimit,
    advanced,
    everything,
)
from seaweedmq.errors import InvalidArgument, OutOfRange
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic
from seaweedmq.spark.streams.stream_ends import BrokerEnds
from seaweedmq.spark.streams.stream_offset import check_place, frontier_of, offset_of
from seaweedmq.spark.streams.stream_options import LimitKind, StreamOptions
from seaweedmq.spark.streams.stream_scan import StreamScan
from seaweedmq.spark.streams.stream_start import starting_frontier
from seaweedmq.storage.place import Place
from seaweedmq.storage.scan.columns import Column
from seaweedmq.storage.snapshot import list_files
from seaweedmq.storage.watch import TopicState, TopicWatch

REFRESH_INTERVAL_S: Final = 0.1
"""Seconds between two observations of storage and brokers: the maximum delay of a batch."""
UNLIMITED: Final = 2**63 - 1
"""Record limit of a query without one, as opposed to a query that reads everything in one batch."""

_LIMITS: Mapping[LimitKind, type[ReadLimit]] = {
    LimitKind.RECORDS: ReadMaxRows,
    LimitKind.BYTES: ReadMaxBytes,
    LimitKind.FILES: ReadMaxFiles,
}


class StreamPartition(InputPartition):  # type: ignore[misc]  # pyspark is not typed here
    """The offset ranges that one task reads, in order. It names no files, so a repeated batch has equal partitions."""

    def __init__(self, ranges: tuple[Range, ...]) -> None:
        super().__init__(None)
        self.ranges = ranges

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StreamPartition) and self.ranges == other.ranges

    def __hash__(self) -> int:
        return hash(self.ranges)


class _Observation:
    """A topic as observed at one time; immutable."""

    def __init__(self, state: TopicState, lineage: LineageGraph, ends: Mapping[int, int]) -> None:
        self.state = state
        self.lineage = lineage
        self.ends = ends


class SeaweedMQStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """The reader of one query. Spark makes another one for the executors, and calls only its ``read``."""

    def __init__(self, place: Place, options: StreamOptions, topic: Topic, columns: tuple[Column, ...]) -> None:
        self._place = place
        self._options = options
        self._topic = topic
        self._columns = columns
        self._watch: TopicWatch | None = None
        self._brokers: BrokerEnds | None = None
        self._observation: _Observation | None = None
        self._refreshed_s = 0.0
        self._is_frozen = False
        """Whether later records are ignored, as the trigger AvailableNow requires."""
        self._planned: tuple[_Observation, dict[str, Any], ReadLimit, dict[str, Any]] | None = None
        """Inputs of the last end offset, and that offset."""
        self._reported: tuple[_Observation, Mapping[str, Any] | None, dict[str, Any]] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        """Return the start of a query without a checkpoint."""
        observation = self._observe(complete=True)
        topic = observation.state.topic
        return offset_of(
            topic, starting_frontier(self._place, topic, observation.lineage, observation.ends, self._options)
        )

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options set."""
        if self._options.limit is None:
            return ReadMaxRows(UNLIMITED)
        kind, count = self._options.limit
        return _LIMITS[kind](count)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Freeze the topic: what exists now is all that the query reads."""
        self._observe(complete=True)
        self._is_frozen = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch."""
        observation = self._observe()
        if self._planned is not None and self._planned[0] is observation:
            _, before, limited, end = self._planned
            if limited == limit and start == before == end:
                return start  # nothing is new
        topic, lineage = observation.state.topic, observation.lineage
        frontier = frontier_of(start, topic, self._place)
        check_place(frontier, topic, lineage)
        is_all = isinstance(limit, ReadAllAvailable)
        following = advanced(
            lineage,
            frontier,
            observation.ends,
            self._limit(limit, observation, frontier),
            None if is_all else SERIAL_RECORDS_MAX,
        )
        self._check_lost(between(lineage, frontier, following), topic)
        end = offset_of(topic, following)
        self._planned = (observation, start, limit, end)
        return end

    def reportLatestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the end of all records, for the query's progress.

        ``behind`` is the number of records between the end of the last planned batch and that end.
        """
        observation = self._observe() if self._observation is None else self._observation
        planned = self._planned[3] if self._planned is not None else None
        if self._reported is not None and self._reported[0] is observation and self._reported[1] == planned:
            return self._reported[2]
        topic, lineage = observation.state.topic, observation.lineage
        frontier = {} if planned is None else frontier_of(planned, topic, self._place)
        last = everything(lineage, frontier, observation.ends)
        behind = {} if planned is None else {"behind": between(lineage, frontier, last).records}
        report = behind | offset_of(topic, last)
        self._reported = (observation, planned, report)
        return report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the partitions of a batch, new or repeated."""
        topic, lineage = self._lineage_now()
        frontiers = [frontier_of(offset, topic, self._place) for offset in (start, end)]
        for frontier in frontiers:
            check_place(frontier, topic, lineage)
        found = between(lineage, *frontiers)
        self._check_lost(found, topic)
        parts = cut(tasks(found.paths), self._options.partitions_min, self._options.partition_records_max)
        return [StreamPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of a partition, on an executor."""
        assert isinstance(partition, StreamPartition), f"Spark returned {partition!r}, which is not a StreamPartition"
        scan = StreamScan(
            place=self._place,
            topic=self._topic,
            columns=self._columns,
            fail_on_data_loss=self._options.fail_on_data_loss,
        )
        return scan.read(partition.ranges)

    def stop(self) -> None:
        """Disconnect from the brokers."""
        if self._brokers is not None:
            self._brokers.close()

    def __getstate__(self) -> dict[str, object]:
        """Return the initial state: what the reader has learned and holds open belongs to the driver."""
        fresh = SeaweedMQStreamReader(self._place, self._options, self._topic, self._columns)
        return dict(vars(fresh))

    def _observe(self, *, complete: bool = False) -> _Observation:
        """Return the topic as it was within ``REFRESH_INTERVAL_S``; the same object if nothing changed.

        With ``complete``, all committed records must be visible, so brokers must answer if the options name some.
        """
        now = time.monotonic()  # noqa: TID251 - a Spark process, which nothing simulates
        if self._observation is not None and (
            self._is_frozen or (now - self._refreshed_s < REFRESH_INTERVAL_S and not complete)
        ):
            return self._observation
        watch = self._watching()
        marks = self._high_watermarks(watch, complete=complete)
        state = watch.poll()
        lineage = self._lineage_of(state)
        last = self._observation
        tables = state.table_ends
        ends = {number: max(tables.get(number, 0), marks.get(number, 0)) for number in lineage.open}
        if last is None or last.state is not state or last.ends != ends:
            self._observation = last = _Observation(state, lineage, ends)
        self._refreshed_s = time.monotonic()  # noqa: TID251 - brokers may take seconds to answer
        return last

    def _lineage_now(self) -> tuple[Topic, LineageGraph]:
        """Return the lineage in the storage: ranges between two offsets need no broker."""
        if self._is_frozen and self._observation is not None:
            return self._observation.state.topic, self._observation.lineage
        state = self._watching().poll()
        return state.topic, self._lineage_of(state)

    def _watching(self) -> TopicWatch:
        if self._watch is None:
            self._watch = TopicWatch(self._place, self._options.topic, time.monotonic)  # noqa: TID251
        return self._watch

    def _lineage_of(self, state: TopicState) -> LineageGraph:
        self._check_topic(state.topic)
        last = self._observation
        return last.lineage if last and last.state.segments is state.segments else LineageGraph(state.segments)

    def _high_watermarks(self, watch: TopicWatch, *, complete: bool) -> Mapping[int, int]:
        """Return the high watermarks, queried before the storage is read.

        A segment that is sealed in between ends where its metadata says.
        """
        if self._options.bootstrap is None:
            return {}
        if self._brokers is None:
            self._brokers = BrokerEnds(self._options.bootstrap, self._options.topic)
        if complete:
            return self._brokers.all_high_watermarks(lambda: [s.id for s in watch.poll().segments if s.is_open])
        return self._brokers.high_watermarks_if_any()

    def _check_topic(self, topic: Topic) -> None:
        if topic.schema != self._topic.schema:
            raise InvalidArgument(
                f"the columns of topic {topic.name} changed since the query was created: load() again and restart it, "
                "with the same checkpointLocation if the plan can take the new columns"
            )

    def _limit(self, limit: ReadLimit, observation: _Observation, frontier: Frontier) -> BatchLimit | None:
        if isinstance(limit, ReadMaxRows):
            return None if limit.max_rows >= UNLIMITED else RecordLimit(limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return ByteLimit(limit.max_bytes, self._pieces(observation, frontier))
        if isinstance(limit, ReadMaxFiles):
            return FileLimit(limit.max_files, self._pieces(observation, frontier))
        if isinstance(limit, ReadAllAvailable | ReadMinRows):
            return None
        raise InvalidArgument(f"Spark requests {limit}, which this source does not know: upgrade seaweedmq")

    def _pieces(self, observation: _Observation, frontier: Frontier) -> dict[int, tuple[SnapshotPiece, ...]]:
        """Return the pieces of all segments that may be read from this frontier."""
        wanted = observation.lineage.segments.keys() - observation.lineage.ancestors(frontier)
        files: dict[int, list[SegmentFile]] = {number: [] for number in wanted}
        for file in list_files(self._place, self._options.topic, wanted):
            files[file.segment].append(file)
        topic, segments = observation.state.topic, observation.lineage.segments
        # Lost records have no size: the task that reads them reports them.
        return {number: plan_snapshot(topic, segments[number], files[number], missing=[]) for number in wanted}

    def _check_lost(self, found: FrontierDiff, topic: Topic) -> None:
        """Raise if retention removed a segment before it was read.

        Segments without records are pruned as well, and nothing distinguishes them. Without retention only those are
        pruned.
        """
        if found.lost and topic.has_retention and self._options.fail_on_data_loss:
            raise OutOfRange(
                f"{self._options.topic}: segments {', '.join(map(str, found.lost))} were removed by retention before "
                "they were read to their end: set option failOnDataLoss to false to continue without them, or begin "
                "with a new checkpointLocation"
            )
