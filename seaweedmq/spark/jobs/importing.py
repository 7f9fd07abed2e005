"""Import of files of any size into a topic: Spark reads them, and the sink publishes one bounded piece at a time.

Each piece is staged in the shared storage and then published, paced by acknowledgements. So the storage needs room for
one piece beside the topic: whole files of ``PIECE_BYTES`` together, or one larger file, as uncompressed record batches.
Those of a Parquet file take several times its size; a file that is too large for that has to be split.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Observation, SparkSession
from pyspark.sql.functions import count, lit

import seaweedmq.spark as ours
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.jobs.input_files import (
    PATTERN,
    as_pattern,
    check_hidden,
    file_sizes,
    folder_of_partitions,
    local_files,
    shown,
)
from seaweedmq.spark.jobs.text_columns import READER_OPTIONS, check_header, infer_columns, verify_csv, with_texts
from seaweedmq.spark.jobs.watched import save_watched
from seaweedmq.spark.spark_errors import SPARK_ERRORS, explain
from seaweedmq.storage.jobs.run import Progress, no_progress
from seaweedmq.storage.places import parse_place
from seaweedmq.storage.staging import topic_in_storage

_NOTHING: Final = "UNABLE_TO_INFER_SCHEMA"
_ODD_TYPES: Final = ("Illegal Parquet type", "UNSUPPORTED_TIME_TYPE")
FORMATS: Final = tuple(READER_OPTIONS)
PIECE_BYTES: Final = 1 << 30
"""Bytes of the files that are published as one piece; a larger file is a piece of its own."""


def import_files(
    spark: SparkSession,
    paths: Sequence[str],
    format: str = "parquet",  # noqa: A002 - Spark's name
    *,
    storage: str,
    topic: str,
    bootstrap: str,
    key: str | None = None,
    timestamp: str | None = None,
    options: dict[str, str] | None = None,
    piece_bytes: int = PIECE_BYTES,
    progress: Progress = no_progress,
) -> int:
    """Publish every row of the files, and return the number of rows.

    The columns are the union of the files' columns. CSV needs the same header in all files, and its types are inferred;
    text columns of the topic, and codes like 01234 in mounted folders, stay text. The topic takes the columns as the
    sink does: an empty topic without a schema adopts them, and keeps them even if a row fails later.

    Pieces consist of whole files, in the order of their names. A row that fails ends the import: the pieces before its
    own are published, its own is not, and the error reports that.

    Args:
        spark: Session that reads the files; the format is registered in it.
        paths: Files, folders and globs, as Spark takes them.
        format: One of ``FORMATS``.
        storage: Root of the storage that the brokers use, mounted on every executor.
        topic: Name of the topic, ``namespace/name``.
        bootstrap: Addresses of brokers, ``host:port[,host:port]``.
        key: Column that supplies keys.
        timestamp: Column that supplies timestamps.
        options: Options of Spark's reader, which override those set here.
        piece_bytes: Bytes of files that are published together.
        progress: Callback that gets the bytes of files that are done, and the total. During a piece it is called in
            another thread; a byte counts half when its row is staged, and whole when it is published.

    Raises:
        InvalidArgument: If the format is unknown, there are no files, or rows or columns would be lost.
        SeaweedMQError: If a piece fails after rows were published; the message has their number, and the first file
            without any.
        pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError: If the files cannot be read, or the sink rejects a
            row; ``spark_errors.explain`` extracts the reason.
    """
    if format not in FORMATS:
        raise InvalidArgument(f"format {format!r:.100} cannot be imported: give one of {', '.join(FORMATS)}")
    if not paths:
        raise InvalidArgument("no files to import: give at least one path")
    check_hidden(paths)
    paths = [as_pattern(path) for path in paths]
    ours.register(spark)
    reader = spark.read.format(format).options(**READER_OPTIONS[format] | (options or {}))
    codes: frozenset[str] = frozenset()
    if format != "parquet":
        local = local_files(spark, paths)
        if format == "csv":
            codes = verify_csv(spark, local, options or {})
        odd = next((shown(uri) for uri in local if PATTERN.search(shown(uri))), None)
        if odd is not None:
            reader = reader.schema(infer_columns(spark, reader, paths, local[0], odd, format, options or {}))
    try:
        whole = reader.load(list(paths))
    except SPARK_ERRORS as error:
        if isinstance(error, AnalysisException) and error.getCondition() == _NOTHING:
            raise _no_files(paths, format) from error
        if format != "parquet" or not any(said in str(error) for said in _ODD_TYPES):
            raise
        raise _explained(spark, paths, error) from error
    topic_schema = _topic_schema(storage, topic)
    wanted = None if topic_schema is None else frozenset(topic_schema.names)
    base = folder_of_partitions(whole.inputFiles(), whole.columns, wanted)
    if base is not None:
        reader = reader.option("basePath", base)
        whole = reader.load(list(paths))
    if format == "csv":
        columns = with_texts(whole.schema, topic_schema, codes)
        if columns != whole.schema:
            whole = reader.schema(columns).load(list(paths))
    files = file_sizes(spark, whole)
    if not files:
        raise _no_files(paths, format)
    if format == "csv":
        check_header(whole.columns, options or {})
    named = whole.metadataColumn("_metadata").getField("file_path")
    if not whole.where(~named.between(min(files), max(files))).isEmpty():  # costs nothing: no file is read
        raise Unsupported(f"Spark has other names for its files than {min(files)}: import them with another version")
    total_bytes = sum(files.values())
    rows = done_bytes = 0
    progress(0, total_bytes)
    for piece in _pieces(files, piece_bytes):
        # Not loaded by name: Spark may treat a name as a pattern, and the given paths decide which folders are columns.
        frame = whole.where(named.between(piece[0], piece[-1]))
        seen = Observation()
        sink = frame.observe(seen, count(lit(1)).alias("rows")).write.format(ours.FORMAT).mode("append")
        sink = sink.options(topic=topic, bootstrap=bootstrap, storage=storage)
        for name, column in (("key", key), ("timestamp", timestamp)):
            if column is not None:
                sink = sink.option(name, column)
        size_bytes = sum(files[path] for path in piece)

        def report(part: float, before: int = done_bytes, piece_size: int = size_bytes) -> None:
            progress(before + int(part * piece_size), total_bytes)

        try:
            save_watched(spark, sink, storage, topic, report)
        except SPARK_ERRORS as error:
            if not rows:
                raise
            why = explain(error)
            raise type(why)(
                f"{why}. {rows:,} rows of the files before {shown(piece[0])} are published, and none from there on"
            ) from error
        rows += int(seen.get["rows"])
        done_bytes += size_bytes
    return rows


def _no_files(paths: Sequence[str], format: str) -> InvalidArgument:  # noqa: A002
    return InvalidArgument(
        f"there are no files to import in {', '.join(paths)}: give files of {format}, or their folder"
    )


def _topic_schema(storage: str, topic: str) -> pa.Schema | None:
    schema = topic_in_storage(parse_place(storage), TopicName.parse(topic)).schema
    return None if schema is None else schema_from_bytes(schema)


def unreadable(schema: pq.ParquetSchema) -> dict[str, str]:
    """Return the columns of a Parquet file that Spark cannot read, with their types."""
    columns = (schema.column(i) for i in range(len(schema)))
    kinds = {column.path.partition(".")[0]: str(column.logical_type) for column in columns}
    return {
        name: kind for name, kind in kinds.items() if "nanoseconds" in kind or kind.startswith(("Time(", "Float16"))
    }


def _explained(spark: SparkSession, paths: Sequence[str], error: BaseException) -> BaseException:
    """Return an error that names the file and columns of a type that Spark cannot read, if a mounted folder has it."""
    for uri in local_files(spark, paths):
        try:
            found = unreadable(pq.read_metadata(shown(uri)).schema)
        except (OSError, pa.ArrowInvalid):
            continue
        if found:
            named = ", ".join(f"{name!r} ({kind})" for name, kind in found.items())
            return InvalidArgument(
                f"{shown(uri)} has columns that Spark cannot read: {named}. Write times in microseconds (in pandas: "
                "astype('datetime64[us]')), or use `seaweedmq publish --format parquet`, which reads them"
            )
    return error


def _pieces(files: dict[str, int], piece_bytes: int) -> Iterator[list[str]]:
    """Yield the names of neighboring files that are published together."""
    piece: list[str] = []
    size = 0
    for name, length in files.items():
        if piece and size + length > piece_bytes:
            yield piece
            piece, size = [], 0
        piece.append(name)
        size += length
    if piece:
        yield piece
