"""Files of an import, as Spark names and finds them."""

import re
from collections.abc import Collection, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession

from seaweedmq.errors import InvalidArgument

_PACKED_OTHERWISE: Final = (".lz4", ".snappy", ".deflate")
"""Suffixes of compressed files that only Hadoop reads."""
PATTERN: Final = re.compile(r"[*?\[\]{}\\]")
"""Characters that make Spark treat a name as a pattern: in a given path, and in any name of a text file."""


def shown(uri: str) -> str:
    """Return a file's path without URI prefix and escapes."""
    return unquote(uri.removeprefix("file://").removeprefix("file:"))


def check_hidden(paths: Sequence[str]) -> None:
    """Raise InvalidArgument for files that Spark skips, whose names begin with "_" or ".".

    In folders, other programs leave such files beside their rows.
    """
    for path in paths:
        name = PurePosixPath(path).name
        if name.startswith(("_", ".")) and name not in (".", "..") and "=" not in name:
            raise InvalidArgument(f"Spark skips {path}, because its name begins with {name[0]!r}: rename it")


def as_pattern(path: str) -> str:
    """Escape the path of an existing file or folder, since Spark treats every path as a pattern."""
    return PATTERN.sub(r"\\\g<0>", path) if PATTERN.search(path) and Path(path).exists() else path


def local_files(spark: SparkSession, paths: Sequence[str]) -> list[str]:
    """Return the files in mounted folders, which Python can also read."""
    found = spark.read.format("binaryFile").load(list(paths)).inputFiles()
    return [uri for uri in found if uri.startswith("file:") and not uri.endswith(_PACKED_OTHERWISE)]


def folder_of_partitions(
    files: Sequence[str], columns: Sequence[str], wanted: Collection[str] | None = None
) -> str | None:
    """Return the parent of folders like ``day=1`` if Spark does not see that they stand for columns.

    Spark looks for them below the paths that it is given. A folder that stands for none of the ``wanted`` columns of
    the topic, if it has a schema, is only a name. InvalidArgument is raised if the folders stand for different columns,
    or only some files have such folders: values or rows would be lost.
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


def file_sizes(spark: SparkSession, frame: DataFrame) -> dict[str, int]:
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
