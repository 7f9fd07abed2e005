"""Files of any size into a topic: Spark reads them, the sink publishes them, a bounded piece at a time.

A piece is staged in the shared storage and then published by acknowledgements, at the pace of the cluster. So what lies
in the storage beside the topic at any time is one piece.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.functions import count, lit

import seaweedmq.spark as ours
from seaweedmq.errors import InvalidArgument

FORMATS: Final = ("parquet", "csv", "json")
PIECE_BYTES: Final = 1 << 30
"""Of the files that are published as one; a larger file is a piece of its own."""
_CSV: Final = {"header": "true", "inferSchema": "true"}

Progress = Callable[[int, int, int], None]
"""Is told the rows that are published, and how many bytes of the files' how many are done."""


def import_files(
    spark: SparkSession,
    paths: Sequence[str],
    format: str,  # noqa: A002 - what Spark calls it
    topic: str,
    bootstrap: str,
    storage: str,
    *,
    key: str | None = None,
    timestamp: str | None = None,
    progress: Progress | None = None,
    options: dict[str, str] | None = None,
    piece_bytes: int = PIECE_BYTES,
) -> int:
    """Publish every row of the files; return how many.

    The columns are those of the files, all together; CSV has a header and its types are inferred. The topic takes them
    as the sink does: an empty one without a schema adopts theirs. Pieces are of whole files, in the order of their
    names. A row that fails ends the import: what came before its piece is published, of the piece nothing is.

    Args:
        paths: files, folders and globs as Spark takes them.
        format: one of ``FORMATS``.
        key, timestamp: columns that they are taken from.
        progress: called after each piece.
        options: of Spark's reader, over those that are set here.
        piece_bytes: of files that are published together.

    Raises:
        InvalidArgument: another format, or there are no files.
        pyspark.errors.PySparkException: the files can not be read, or the sink refuses; the message says why.
    """
    if format not in FORMATS:
        raise InvalidArgument(f"format {format!r:.100} can not be imported: give one of {', '.join(FORMATS)}")
    if not paths:
        raise InvalidArgument("no files to import: give at least one path")
    ours.register(spark)
    reader = spark.read.format(format).options(**(_CSV if format == "csv" else {}), **(options or {}))
    whole = reader.load(list(paths))
    files = _sizes(spark, whole)
    total_bytes = sum(files.values())
    rows = done_bytes = 0
    for piece in _pieces(files, piece_bytes):
        frame = reader.schema(whole.schema).load(piece)
        seen = Observation()
        sink = frame.observe(seen, count(lit(1)).alias("rows")).write.format(ours.FORMAT).mode("append")
        sink = sink.options(topic=topic, bootstrap=bootstrap, storage=storage)
        for name, column in (("key", key), ("timestamp", timestamp)):
            if column is not None:
                sink = sink.option(name, column)
        sink.save()
        rows += int(seen.get["rows"])
        done_bytes += sum(files[path] for path in piece)
        if progress is not None:
            progress(rows, done_bytes, total_bytes)
    return rows


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
