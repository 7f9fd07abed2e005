"""Files of any size into a topic: Spark reads them, the sink publishes them, a bounded piece at a time.

A piece is staged in the shared storage and then published by acknowledgements, at the pace of the cluster. So what lies
in the storage beside the topic at any time is one piece: whole files of ``PIECE_BYTES`` together, or one file that is
larger than that, whatever its size, as record batches that are not compressed. Those of a Parquet file take several
times its size. Who has a file that is too large for that gives it in several.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

import seaweedmq.spark as ours
from seaweedmq.errors import InvalidArgument
from seaweedmq.spark.failures import SPARK_ERRORS, told
from seaweedmq.spark.jobs.watched import save_watched
from seaweedmq.storage.jobs.run import Progress, no_progress

_OPTIONS: Final = {
    "parquet": {"mergeSchema": "true"},
    "csv": {"header": "true", "inferSchema": "true", "enforceSchema": "false", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
"""Otherwise Spark takes the columns of one file for those of all, and damaged rows for rows of nulls."""
_NOTHING: Final = "UNABLE_TO_INFER_SCHEMA"
FORMATS: Final = tuple(_OPTIONS)
PIECE_BYTES: Final = 1 << 30
"""Of the files that are published as one; a larger file is a piece of its own."""


def import_files(
    spark: SparkSession,
    paths: Sequence[str],
    format: str = "parquet",  # noqa: A002 - what Spark calls it
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
    """Publish every row of the files; return how many.

    The columns are those of the files, all together; CSV has a header, the same in all files, and its types are
    inferred. The topic takes them as the sink does: an empty one without a schema adopts theirs, and keeps it should a
    row fail after that. Pieces are of whole files, in the order of their names. A row that fails ends the import: what
    came before its piece is published, of the piece nothing is, and the error says so.

    Args:
        paths: files, folders and globs as Spark takes them.
        format: one of ``FORMATS``.
        storage: root of the storage, as the brokers were started with; mounted on every executor.
        bootstrap: addresses of brokers, ``host:port[,host:port]``.
        key, timestamp: columns that they are taken from.
        options: of Spark's reader, over those that are set here.
        piece_bytes: of files that are published together.
        progress: called with the bytes of files that are done, and of all, also while a piece is under way: a byte
            counts half when its row is staged, and whole when it is published. Then it is called in another thread.

    Raises:
        InvalidArgument: another format, or there are no files.
        SeaweedMQError: as the next, once rows are published: how many, and of which files none.
        pyspark.errors.PySparkException, py4j.protocol.Py4JJavaError: the files can not be read, or the sink refuses;
            ``failures.told`` says why.
    """
    if format not in FORMATS:
        raise InvalidArgument(f"format {format!r:.100} can not be imported: give one of {', '.join(FORMATS)}")
    if not paths:
        raise InvalidArgument("no files to import: give at least one path")
    ours.register(spark)
    reader = spark.read.format(format).options(**_OPTIONS[format] | (options or {}))
    try:
        whole = reader.load(list(paths))
    except AnalysisException as error:
        if error.getCondition() != _NOTHING:
            raise
        raise _no_files(paths, format) from error
    files = _sizes(spark, whole)
    if not files:
        raise _no_files(paths, format)
    total_bytes = sum(files.values())
    rows = done_bytes = 0
    progress(0, total_bytes)
    for piece in _pieces(files, piece_bytes):
        frame = reader.schema(whole.schema).load(piece)
        seen = Observation()
        sink = frame.observe(seen, count(lit(1)).alias("rows")).write.format(ours.FORMAT).mode("append")
        sink = sink.options(topic=topic, bootstrap=bootstrap, storage=storage)
        for name, column in (("key", key), ("timestamp", timestamp)):
            if column is not None:
                sink = sink.option(name, column)
        size_bytes = sum(files[path] for path in piece)

        def tell(part: float, before: int = done_bytes, mine: int = size_bytes) -> None:
            progress(before + int(part * mine), total_bytes)

        try:
            save_watched(spark, sink, storage, topic, tell)
        except SPARK_ERRORS as error:
            if not rows:
                raise
            why = told(error)
            raise type(why)(
                f"{why}. {rows:,} rows of the files before {piece[0]} are published, and nothing from there on"
            ) from error
        rows += int(seen.get["rows"])
        done_bytes += size_bytes
    return rows


def _no_files(paths: Sequence[str], format: str) -> InvalidArgument:  # noqa: A002
    return InvalidArgument(
        f"there are no files to import in {', '.join(paths)}: give files of {format}, or their folder"
    )


def _sizes(spark: SparkSession, frame: DataFrame) -> dict[str, int]:
    """Files of a DataFrame, by name -> bytes."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark has no other way to a size
    path_of = spark.sparkContext._jvm.org.apache.hadoop.fs.Path  # noqa: SLF001
    sizes = {}
    for name in sorted(frame.inputFiles()):
        path = path_of(name)
        sizes[name] = int(path.getFileSystem(hadoop).getFileStatus(path).getLen())
    return sizes


def _pieces(files: dict[str, int], piece_bytes: int) -> Iterator[list[str]]:
    """Neighbours that are published together."""
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
