"""Writers behind ``df.write.format("seaweedmq")`` and ``df.writeStream``.

Tasks stage frames, and the driver publishes them as one batch. A write takes effect once its driver has written the
manifest. No manifest lists what repeated, speculative or lost tasks staged. A streaming batch that runs again finds the
first manifest and completes it.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from seaweedmq.aio import system_environment
from seaweedmq.errors import InvalidArgument, StorageFailed, Unsupported
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.staged import StagedFile
from seaweedmq.spark.write.sink_columns import check_kinds
from seaweedmq.spark.write.sink_options import SinkOptions, parse_sink_options
from seaweedmq.spark.write.sink_plan import SinkPlan, plan_sink, run
from seaweedmq.spark.write.sink_publish import publish_staged
from seaweedmq.spark.write.stager import Stager
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.staged_sweep import sweep
from seaweedmq.storage.staging import ONCE, StagedBatch, StagedSink

log = logging.getLogger(__name__)

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_ONLY_APPENDS = "a topic can only be appended to: use {}; the topic's retention removes old records"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):  # type: ignore[misc]  # pyspark is not typed here
    """The result of one task: the file that it staged."""

    sink: str
    topic_uid: int
    partition: int
    file: StagedFile


class BatchSink(DataSourceArrowWriter):  # type: ignore[misc]
    """The writer of one DataFrame, under an identity of its own."""

    def __init__(self, options: SinkOptions, plan: SinkPlan, sink: str) -> None:
        self._options = options
        self._plan = plan
        self._sink = sink

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task."""
        return _stage(self._plan, self._sink, 0, iterator)

    def commit(self, messages: Sequence[Staged | None]) -> None:
        """Publish what the tasks staged."""
        try:
            run(publish_staged(self._options, self._sink, 0, _files(messages), self._plan.topic_uid, is_last=True))
        finally:
            self._clear()

    def abort(self, messages: Sequence[Staged | None]) -> None:
        """Remove what the tasks staged."""
        self._clear()

    def _clear(self) -> None:
        """Remove the staged files; what is left is swept a day later.

        Raises nothing. A published write must not be reported as failed, since it can only be repeated as a whole.
        """
        try:
            StagedSink(self._plan.place, self._plan.topic, self._sink).remove()
        except StorageFailed as error:
            log.warning("staged files not removed: %s, until the next sweep: %s", self._plan.topic, error)


class StreamSink(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """The writer of a query's batches, each published exactly once.

    The sink's identity is the query's id, which the checkpoint stores.
    """

    def __init__(self, options: SinkOptions, plan: SinkPlan) -> None:
        self._options = options
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        """Stage the rows of one task of a batch."""
        context = TaskContext.get()
        query, batch = (context.getLocalProperty(name) for name in (_QUERY, _BATCH))
        if query is None or batch is None:
            raise Unsupported("Spark does not pass a task's query and batch ids: use PySpark 4.2 or later")
        return _stage(self._plan, f"q-{query}", int(batch), iterator)

    def commit(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Publish what the tasks staged for a batch, unless the batch is already published."""
        first = next((message for message in messages if message is not None), None)
        if first is not None:
            sink = StagedSink(parse_place(self._options.storage), self._options.topic, first.sink)
            sink.bind_topic(first.topic_uid)
            run(publish_staged(self._options, first.sink, batchId, _files(messages), first.topic_uid))

    def abort(self, messages: Sequence[Staged | None], batchId: int) -> None:  # noqa: N803
        """Remove what the tasks staged for a batch, except files in its manifest."""
        staged = [message for message in messages if message is not None]
        if not staged:
            return
        batch = StagedBatch(parse_place(self._options.storage), self._options.topic, staged[0].sink, batchId)
        manifest = batch.manifest()
        kept = set() if manifest is None else {file.name for file in manifest.files}
        batch.discard({message.file.name for message in staged} - kept)


def batch_sink(given: dict[str, str], schema: StructType, overwrite: bool) -> BatchSink:
    """Return a writer for one write; nothing is written if the options or columns do not fit, or no broker answers."""
    options, plan = _planned(given, schema, overwrite, 'mode("append")')
    return BatchSink(options, plan, options.write_id or new_write_id())


def new_write_id() -> str:
    """Return a random id of a write, unlike that of any other write."""
    return f"{ONCE}{system_environment().rng.getrandbits(64):016x}"


def stream_sink(given: dict[str, str], schema: StructType, overwrite: bool) -> StreamSink:
    """Return a writer for all batches of a query; raises like :func:`batch_sink`."""
    return StreamSink(*_planned(given, schema, overwrite, 'outputMode("append")'))


def _planned(given: dict[str, str], schema: StructType, overwrite: bool, append: str) -> tuple[SinkOptions, SinkPlan]:
    options = parse_sink_options(given)
    if overwrite:
        raise Unsupported(_ONLY_APPENDS.format(append))
    check_kinds(schema)
    plan = run(plan_sink(options, to_arrow_schema(schema, timezone="UTC")))
    sweep(plan.place, plan.topic)
    return options, plan


def _stage(plan: SinkPlan, sink: str, number: int, batches: Iterable[pa.RecordBatch]) -> Staged:
    context = TaskContext.get()
    partition = context.partitionId()
    staged = StagedSink(plan.place, plan.topic, sink)
    done = staged.done()
    ranges, ring = plan.ranges, plan.ring
    if done is not None and done.ranges:  # as of the last batch; partitions may have been added since the query's start
        ranges, ring = done.ranges, KeyRange(0, done.ranges[-1].hi)
    with staged.batch(number).staging(f"{partition:05d}-{context.taskAttemptId()}") as file:
        Stager(file, plan.columns, ring, ranges, plan.frame_bytes_max, system_environment()).write(batches)
        return Staged(sink, plan.topic_uid, partition, file.finish())


def _files(messages: Sequence[Staged | None]) -> list[StagedFile]:
    """Return the staged files in the order of their partitions, which is the order of the rows."""
    staged = sorted((m for m in messages if m is not None), key=lambda message: message.partition)
    if len({message.partition for message in staged}) != len(staged):
        raise InvalidArgument("Spark committed two tasks of one partition: run the write again")
    return [message.file for message in staged]
