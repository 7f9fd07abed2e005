"""Import of files of any size into a topic: Spark reads them, and the sink publishes one bounded piece at a time.

Each piece is staged in the shared storage and then published, paced by acknowledgements. So the storage needs room for
one piece beside the topic: whole files of ``PIECE_BYTES`` together, or one larger file, as uncompressed record batches.
Those of a Parquet file take several times its size; a file that is too large for that has to be split.
"""

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, Observation, SparkSession
from pyspark.sql.functions import count, lit, struct, to_csv
from pyspark.sql.types import NumericType, StringType, StructField, StructType

import seaweedmq.spark as ours
from seaweedmq.codec.imports import csv_tables
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import InvalidArgument, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.jobs.watched import save_watched
from seaweedmq.spark.spark_errors import SPARK_ERRORS, explain
from seaweedmq.storage.jobs.run import Progress, no_progress
from seaweedmq.storage.staging import topic_in_storage
from seaweedmq.storage.store.files import open_store

_OPTIONS: Final = {
    "parquet": {"mergeSchema": "true"},
    "csv": {
        "header": "true",
        "inferSchema": "true",
        "enforceSchema": "false",
        "mode": "FAILFAST",
        "multiLine": "true",
        "escape": '"',
        "unescapedQuoteHandling": "RAISE_ERROR",
    },
    "json": {"mode": "FAILFAST"},
}
"""Options of Spark's readers, without which they alter rows silently.

By default Spark takes the columns of one file for those of all, reads damaged rows as nulls, and ends a row at a line
break in quoted text.
"""
_NOTHING: Final = "UNABLE_TO_INFER_SCHEMA"
_PACKED_OTHERWISE: Final = (".lz4", ".snappy", ".deflate")
"""Suffixes of compressed files that only Hadoop reads."""
_PIECE_READ_BYTES: Final = 1 << 20
_ODD_TYPES: Final = ("Illegal Parquet type", "UNSUPPORTED_TIME_TYPE")
_PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""Characters that make Spark treat a name as a pattern: in a given path, and in any name of a text file."""
_COMMON: Final = frozenset({"sep", "delimiter", "inferschema", "mode", "basepath"})
_BLANKS: Final = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
FORMATS: Final = tuple(_OPTIONS)
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
    reader = spark.read.format(format).options(**_OPTIONS[format] | (options or {}))
    codes: frozenset[str] = frozenset()
    if format != "parquet":
        local = _local_files(spark, paths)
        if format == "csv":
            codes = _verify_csv(spark, local, options or {})
        odd = next((shown(uri) for uri in local if _PATTERN.search(shown(uri))), None)
        if odd is not None:
            reader = reader.schema(_columns(spark, reader, paths, local[0], odd, format, options or {}))
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
    files = _sizes(spark, whole)
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

        def tell(part: float, before: int = done_bytes, mine: int = size_bytes) -> None:
            progress(before + int(part * mine), total_bytes)

        try:
            save_watched(spark, sink, storage, topic, tell)
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


def shown(uri: str) -> str:
    """Return a file's path without URI prefix and escapes."""
    return unquote(uri.removeprefix("file://").removeprefix("file:"))


def check_hidden(paths: Sequence[str]) -> None:
    """Raise for files that Spark skips; in folders, other programs leave such files beside their rows.

    Raises:
        InvalidArgument: If a file's name begins with "_" or ".".
    """
    for path in paths:
        name = PurePosixPath(path).name
        if name.startswith(("_", ".")) and name not in (".", "..") and "=" not in name:
            raise InvalidArgument(f"Spark skips {path}, because its name begins with {name[0]!r}: rename it")


def as_pattern(path: str) -> str:
    """Escape the path of an existing file or folder, since Spark treats every path as a pattern."""
    return _PATTERN.sub(r"\\\g<0>", path) if _PATTERN.search(path) and Path(path).exists() else path


def check_header(columns: Sequence[str], options: Mapping[str, str]) -> None:
    """Raise for a header that seems to have another separator.

    Raises:
        InvalidArgument: If the header is one column with a separator in its name, and the options give no separator.
    """
    is_given = any(name.lower() in ("sep", "delimiter") for name in options)
    other = next((mark for mark in ";\t|" if mark in columns[0]), None) if len(columns) == 1 else None
    if other is not None and not is_given:
        raise InvalidArgument(
            f"the files have one column, {columns[0]!r}: give the separator {other!r} (--separator, option 'sep') if "
            "it separates the columns, or ',' if it is part of the name"
        )


def _topic_schema(storage: str, topic: str) -> pa.Schema | None:
    schema = topic_in_storage(open_store(storage).root, TopicName.parse(topic)).schema
    return None if schema is None else schema_from_bytes(schema)


def with_texts(columns: StructType, topic_schema: pa.Schema | None, codes: Collection[str]) -> StructType:
    """Return the columns of CSV files, with text where Spark's type would alter the values.

    Args:
        columns: Columns that Spark inferred.
        topic_schema: Schema of the topic, or None; its text columns are read as text.
        codes: Columns with values like 01234 or +49151, which are text in a topic without a schema.
    """

    def is_text(field: StructField) -> bool:
        if topic_schema is None:
            return field.name in codes and isinstance(field.dataType, NumericType)
        kind = topic_schema.field(field.name).type if field.name in topic_schema.names else pa.null()
        return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))

    return StructType([StructField(each.name, StringType()) if is_text(each) else each for each in columns.fields])


def _is_common(options: Mapping[str, str]) -> bool:
    """Whether the checks here can read files with these options as Spark does."""
    return {name.lower() for name in options} <= _COMMON and len(_separator(options) or ",") == 1


def _separator(options: Mapping[str, str]) -> str | None:
    names = {name.lower(): value for name, value in options.items()}
    return names.get("sep", names.get("delimiter"))


def _columns(
    spark: SparkSession,
    reader: DataFrameReader,
    paths: Sequence[str],
    first: str,
    odd: str,
    format: str,  # noqa: A002
    options: Mapping[str, str],
) -> StructType:
    """Infer the columns of text files some of whose names Spark treats as patterns.

    Spark does that only while it infers columns, not while it reads rows, so it gets the rows in place of the names.
    ``first`` is one of the files, and ``odd`` the name of a file that looks like a pattern.

    Raises:
        InvalidArgument: If the options do not allow this.
    """
    if not _is_common(options):
        raise InvalidArgument(f"Spark treats {odd} as a pattern, which other files may match: rename it or its folder")
    if format == "json":
        lines = spark.read.text(list(paths)).rdd.map(itemgetter(0))
        return spark.read.options(**_OPTIONS["json"] | dict(options)).json(lines).schema
    separator = _separator(options) or ","
    with (
        pa.input_stream(shown(first), compression="detect") as stream,
        io.TextIOWrapper(stream, "utf-8-sig", newline="") as text,
    ):
        names = next((row for row in csv.reader(text, delimiter=separator) if row), [])
    texts = reader.schema(StructType([StructField(name, StringType()) for name in names])).load(list(paths))
    written = {"sep": separator, "escape": '"', **dict.fromkeys(_BLANKS, "false")}
    rows = texts.select(to_csv(struct(*(texts["`" + name.replace("`", "``") + "`"] for name in names)), written))
    typed = spark.read.options(**_OPTIONS["csv"] | dict(options) | {"header": "false"})
    found = typed.csv(rows.rdd.map(itemgetter(0))).schema.fields or [StructField("", StringType())] * len(names)
    return StructType([StructField(name, field.dataType) for name, field in zip(names, found, strict=True)])


def _verify_csv(spark: SparkSession, files: Sequence[str], options: Mapping[str, str]) -> frozenset[str]:
    """Verify that files are CSV before any of their rows is published. Checks only files in mounted folders.

    Spark takes the end of a file for the end of a quotation, and replaces bytes that are not UTF-8 by question marks.

    Returns:
        The columns with codes, as ``csv_tables.verify`` finds them.

    Raises:
        InvalidArgument: If a file is not CSV; names the file, the line and the remedy.
    """
    if not files or not _is_common(options):
        return frozenset()
    separator = _separator(options)
    context = spark.sparkContext
    try:
        parts = context.parallelize(files, min(len(files), 4 * context.defaultParallelism))
        return frozenset().union(*parts.map(partial(_verify_one, separator=separator)).collect())
    except SPARK_ERRORS as error:
        raise explain(error) from error


def _local_files(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return the files in mounted folders, which Python can also read."""
    found = spark.read.format("binaryFile").load(list(paths)).inputFiles()
    return [uri for uri in found if uri.startswith("file:") and not uri.endswith(_PACKED_OTHERWISE)]


def _verify_one(uri: str, separator: str | None) -> frozenset[str]:
    with pa.input_stream(shown(uri), compression="detect") as stream:
        return csv_tables.verify(shown(uri), iter(lambda: stream.read(_PIECE_READ_BYTES), b""), separator)


def unreadable(schema: pq.ParquetSchema) -> dict[str, str]:
    """Return the columns of a Parquet file that Spark cannot read, with their types."""
    columns = (schema.column(i) for i in range(len(schema)))
    kinds = {column.path.partition(".")[0]: str(column.logical_type) for column in columns}
    return {
        name: kind for name, kind in kinds.items() if "nanoseconds" in kind or kind.startswith(("Time(", "Float16"))
    }


def _explained(spark: SparkSession, paths: Sequence[str], error: BaseException) -> BaseException:
    """Return an error that names the file and columns of a type that Spark cannot read, if a mounted folder has it."""
    for uri in _local_files(spark, paths):
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


def folder_of_partitions(
    files: Sequence[str], columns: Sequence[str], wanted: Collection[str] | None = None
) -> str | None:
    """Return the parent of folders like ``day=1`` if Spark does not see that they stand for columns.

    Spark looks for them below the paths that it is given.

    Args:
        files: Names of the files in Spark.
        columns: Columns that Spark found.
        wanted: Columns of the topic, if it has a schema; a folder that stands for none of them is only a name.

    Raises:
        InvalidArgument: If the folders of the files stand for different columns, or only some files have such folders;
            values or rows would be lost.
    """
    found = {_partitions(uri) for uri in files}
    kinds = {tuple(name for name, _ in each) for _, each in found}
    if not any(kinds):
        return None
    if len(kinds) > 1:
        explain = sorted("/".join(f"{name}=..." for name in names) or "no such folder" for names in kinds)
        raise InvalidArgument(
            f"the files lie in folders of several kinds ({', '.join(explain)}), whose columns differ: import each "
            "kind by itself"
        )
    seen = {name.casefold() for name in columns}
    lost = {name for name in next(iter(kinds)) if name.casefold() not in seen}
    if not (lost if wanted is None else lost & {*wanted}):
        return None
    bases = sorted({base for base, _ in found})
    if len(bases) > 1:
        raise InvalidArgument(
            f"{bases[0]} and {bases[1]} both have folders that stand for columns: give those folders, or import "
            "them one by one"
        )
    return bases[0]


def _partitions(uri: str) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the parent of a file's folders like ``day=1``, and their names and values."""
    folder = unquote(uri).rpartition("/")[0]
    found: list[tuple[str, str]] = []
    while "=" in folder.rpartition("/")[2].strip("="):
        folder, _, last = folder.rpartition("/")
        name, _, value = last.partition("=")
        found.insert(0, (name, value))
    return folder, tuple(found)


def _sizes(spark: SparkSession, frame: DataFrame) -> dict[str, int]:
    """Return the files of a DataFrame, named as in ``_metadata.file_path``, with their bytes."""
    hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001 - PySpark exposes no other way to a size
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    path_of = jvm.org.apache.hadoop.fs.Path
    sizes = {}
    for name in frame.inputFiles():
        path = path_of(jvm.java.net.URI(name))
        status = path.getFileSystem(hadoop).getFileStatus(path)
        sizes[str(path_of(path.toString()).toUri().toString())] = int(status.getLen())
    return dict(sorted(sizes.items()))


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
