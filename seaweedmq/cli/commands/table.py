"""Commands `seaweedmq table ...`: jobs on a topic's Parquet files, on Spark; only `import` needs a broker."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer

from seaweedmq.cli.options import (
    Common,
    OnMissing,
    OnMissingOption,
    SeparatorOption,
    TopicArgument,
    checked_topic,
    common_options,
    option,
    output_option,
    size_bytes,
)
from seaweedmq.cli.output import EXIT_FAILED, Output, note, progress, say, show_done, show_json, show_rows
from seaweedmq.cli.spark_session import spark_session
from seaweedmq.codec.imports.csv_text import separator_of
from seaweedmq.core.files.compaction import TARGET_BYTES
from seaweedmq.errors import InvalidArgument, NotFound
from seaweedmq.model.topic import TopicName
from seaweedmq.runtime.process.local_folder import LOCAL_STORAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seaweedmq.storage.place import Place

app = typer.Typer(help="Compact, rebuild, verify, import and export the tables of a topic.", no_args_is_help=True)

MIB = 1024 * 1024
Progress = Callable[[int, int], None]
"""Callback with the bytes that are done, and the total."""
SHOWN_MAX = 20
"""Maximum number of problems and differences in a printed table; JSON has all of them."""


def _local_storage() -> str:
    """Return the storage of a `seaweedmq up` that was started in this folder."""
    if not LOCAL_STORAGE.is_dir():
        raise typer.BadParameter(
            f"missing, and there is no {LOCAL_STORAGE} here: give the root that the brokers use, or set "
            "SEAWEEDMQ_STORAGE"
        )
    return str(LOCAL_STORAGE.absolute())


StorageOption = Annotated[
    str,
    option(
        metavar="URI",
        envvar="SEAWEEDMQ_STORAGE",
        help=f"Set the root of the storage that the brokers use (SEAWEEDMQ_STORAGE, else {LOCAL_STORAGE} of `up`).",
        default_factory=_local_storage,
    ),
]
MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="Set Spark's master; its executors need SeaweedMQ and the storage.")
]


@app.command()
@output_option
def compact(
    common: Common,
    topic: TopicArgument,
    storage: StorageOption,
    target: Annotated[str, typer.Option(metavar="SIZE", help="Set the target size of the tables.")] = "256MiB",
    master: MasterOption = "local[*]",
) -> None:
    """Merge small tables into large ones.

    Brokers and readers may run meanwhile, and the command may be stopped at any time.
    """
    target_bytes = size_bytes(target) or TARGET_BYTES
    with _tables("compact", topic, storage, master) as tables:
        from seaweedmq.spark import jobs

        found = jobs.compact(**tables, target_bytes=target_bytes)
    fields = {
        "topic": str(found.topic),
        "tables_before": found.tables_before,
        "tables_after": found.tables_after,
        "merged": found.merged,
        "merged_bytes": found.merged_bytes,
        "finished": found.finished,
        "made": [table.path for table in found.made],
        "elsewhere": [str(error) for error in found.elsewhere],
        "problems": [str(error) for error in found.problems],
        "delta_version": found.version,
    }
    done = f"{found.topic} had {found.tables_before:,} tables and has {found.tables_after:,}"
    show_done(fields, f"{done}: {found.merged:,} were merged into {len(found.made):,}", common.output)
    for error in found.elsewhere[:SHOWN_MAX]:
        note(f"left to another process: {error}")
    _end(found.problems)


@app.command()
@output_option
def verify(common: Common, topic: TopicArgument, storage: StorageOption, master: MasterOption = "local[*]") -> None:
    """Verify that tables are sound and log files hold the same records; exit with status 1 otherwise."""
    with _tables("verify", topic, storage, master) as tables:
        from seaweedmq.spark import jobs

        found = jobs.verify(**tables)
    differences = [
        {"path": d.path, "offset": d.offset, "column": d.column, "difference": d.what} for d in found.differences
    ]
    if common.output is Output.JSON:
        fields = {
            "topic": str(found.topic),
            "tables": found.tables,
            "records": found.records,
            "compared": found.compared,
        }
        show_json({**fields, "is_sound": found.is_sound, "differences": differences})
    elif differences:
        show_rows(differences[:SHOWN_MAX], ["path", "offset", "column", "difference"], common.output)
    else:
        records = f"{found.records:,} records in {found.tables:,} tables"
        say(f"{found.topic} is sound: {records}, and {found.compared:,} records in log files are the same")
    if differences:
        note(f"error: {len(differences)} files of {found.topic} differ, the first is {differences[0]['path']}")
        raise typer.Exit(EXIT_FAILED)


@app.command()
@output_option
def rebuild(common: Common, topic: TopicArgument, storage: StorageOption, master: MasterOption = "local[*]") -> None:
    """Rebuild missing and damaged tables from the existing log files, and the Delta log from the tables."""
    with _tables("rebuild", topic, storage, master) as tables:
        from seaweedmq.spark import jobs

        found = jobs.rebuild(**tables)
    fields = {
        "topic": str(found.topic),
        "made": [table.path for table in found.made],
        "replaced": found.replaced,
        "problems": [str(error) for error in found.problems],
        "delta_version": found.version,
    }
    done = f"{found.topic}: {len(found.made):,} tables were rebuilt"
    show_done(fields, f"{done}, {len(found.replaced):,} of them to replace damaged ones", common.output)
    _end(found.problems)


@app.command()
@output_option
def history(
    common: Common,
    topic: TopicArgument,
    storage: StorageOption,
    master: Annotated[
        str, typer.Option(metavar="URL", help="Accept Spark's master, like the other jobs; unused here.")
    ] = "local[*]",
) -> None:
    """Show the versions of the topic's Delta table, newest first."""
    place = place_of(storage, topic)
    from seaweedmq.storage.tables.delta import versions

    rows = [asdict(version) for version in reversed(versions.history(place, TopicName.parse(topic)))]
    columns = list(rows[0]) if rows else []
    show_rows(rows, columns, common.output, empty="no versions")


@app.command("import")
@common_options
def import_(
    common: Common,
    topic: TopicArgument,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Name files or folders.", show_default=False)],
    storage: StorageOption,
    format_: Annotated[
        str, typer.Option("--format", metavar="parquet|csv|json", help="Set the format of the files.")
    ] = "parquet",
    key: Annotated[str | None, option(metavar="COLUMN", help="Use this column as the key.")] = None,
    timestamp: Annotated[str | None, option(metavar="COLUMN", help="Use this column as the timestamp.")] = None,
    separator: SeparatorOption = None,
    master: MasterOption = "local[*]",
) -> None:
    """Publish the rows of files to a topic, as fast as its brokers take them.

    In a folder with subfolders like day=1, day is a column.
    """
    if format_ not in ("parquet", "csv", "json"):
        raise typer.BadParameter(f"format {format_!r} is not parquet, csv or json")
    if separator is not None and format_ != "csv":
        raise typer.BadParameter("it needs --format csv", param_hint="--separator")
    options = {} if separator is None else {"sep": separator_of(separator)}
    with _tables("import", topic, storage, master) as tables:
        from seaweedmq.spark import jobs

        rows = jobs.import_files(
            **tables,
            paths=paths,
            format=format_,
            bootstrap=common.bootstrap,
            key=key,
            timestamp=timestamp,
            options=options,
        )
        name = tables["topic"]
    show_done({"topic": name, "rows": rows}, f"imported {rows:,} rows into {name}", common.output)


@app.command()
@output_option
def export(
    common: Common,
    topic: TopicArgument,
    iceberg: Annotated[str, option(metavar="CATALOG", help="Name the catalog to register them in.")],
    storage: StorageOption,
    on_missing: OnMissingOption = OnMissing.FAIL,
) -> None:
    """Register the topic's Parquet files with an Iceberg catalog; nothing is copied."""
    name = checked_topic(topic)
    place = place_of(storage, name)
    from seaweedmq.storage.iceberg import export_iceberg

    done = export_iceberg(place, TopicName.parse(name), iceberg, skip_missing=on_missing is OnMissing.SKIP)
    said = f"registered {done.files:,} files of {name} with {iceberg} as {done.table}"
    for column, why in done.left_out.items():
        said += f"\nleft out: {column}, {why}"
    show_done({"topic": name, "catalog": iceberg, **asdict(done)}, said, common.output)


def place_of(storage: str, topic: str) -> "Place":
    """Return the place of the storage, checked before Spark is started in vain.

    Raises:
        InvalidArgument: If the storage is not a directory.
        NotFound: If no such topic exists.
    """
    # Lazy import: help and wrong usage need no storage.
    from seaweedmq.storage.places import parse_place
    from seaweedmq.storage.snapshot import list_topics

    place = parse_place(storage)
    if not place.exists():
        raise InvalidArgument(f"storage {place} is not a directory: give the root that the brokers use")
    if TopicName.parse(topic) not in list_topics(place):
        raise NotFound(f"no topic {topic} in {place}")
    return place


class _Tables(TypedDict):
    """The arguments of a job of ``seaweedmq.spark.jobs``."""

    spark: "SparkSession"
    storage: str
    topic: str
    progress: Progress


@contextlib.contextmanager
def _tables(what: str, topic: str, storage: str, master: str) -> Iterator[_Tables]:
    """Yield the arguments of a job on an existing topic, with a Spark session and a progress bar."""
    name = checked_topic(topic)
    place_of(storage, name)
    with spark_session(master, f"seaweedmq table {what} {name}") as spark, progress("MiB") as bars:
        bar = bars.add(f"{what} {name}", None)

        def at(done: int, total: int) -> None:
            bar.of(total)
            bar.at(round(done / MIB, 1), position=done)

        yield _Tables(spark=spark, storage=storage, topic=name, progress=at)


def _end(problems: Sequence[Exception]) -> None:
    """Exit with status 1 if there are problems, and print the first of them."""
    if problems:
        more = f" (and {len(problems) - 1} more: --output json shows all)" if len(problems) > 1 else ""
        note(f"error: {problems[0]}{more}")
        raise typer.Exit(EXIT_FAILED)
