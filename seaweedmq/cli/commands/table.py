"""`seaweedmq table ...`: jobs on the Parquet files of a topic, on Spark; no broker is needed, but for `import`."""

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from seaweedmq.cli.options import BootstrapOption, Common, OutputOption, TopicArgument, checked_topic, size_bytes
from seaweedmq.cli.output import EXIT_FAILED, Output, note, progress, say, show_done, show_json, show_rows
from seaweedmq.core.files.compaction import TARGET_BYTES
from seaweedmq.errors import InvalidArgument, NotFound, Unsupported
from seaweedmq.model.topic import TopicName
from seaweedmq.storage.store.files import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(help="Compact, rebuild, verify, import and export the tables of a topic.", no_args_is_help=True)

MIB = 1024 * 1024
PYSPARK_MIN = (4, 1)
JAVA_MIN = 17
SHOWN_MAX = 20
"""Problems and differences in a table; JSON has all of them."""

StorageOption = Annotated[
    str,
    typer.Option(
        metavar="URI",
        envvar="SEAWEEDMQ_STORAGE",
        help="Root of the storage, as the brokers were started with.",
        show_default=False,
    ),
]
MasterOption = Annotated[
    str, typer.Option(metavar="URL", help="Where Spark runs; its executors need SeaweedMQ and the storage.")
]


@app.command()
def compact(
    context: typer.Context,
    topic: TopicArgument,
    storage: StorageOption,
    target: Annotated[str, typer.Option(metavar="SIZE", help="Of the tables that are made, about.")] = "256MiB",
    master: MasterOption = "local[*]",
    output: OutputOption = None,
) -> None:
    """Merge small tables into large ones. Brokers may go on, and so may readers; it may be stopped at any time."""
    common = Common.of(context, None, output)
    name, target_bytes = checked_topic(topic), size_bytes(target) or TARGET_BYTES
    _topic_folder(storage, name)
    with _job(master, name, "compact") as (spark, at):
        jobs = importlib.import_module("seaweedmq.spark.jobs")
        found = jobs.compact(spark, storage=storage, topic=name, target_bytes=target_bytes, progress=at)
    fields = {
        "topic": name,
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
    done = f"{name} had {found.tables_before:,} tables and has {found.tables_after:,}"
    show_done(fields, f"{done}: {found.merged:,} were merged into {len(found.made):,}", common.output)
    for error in found.elsewhere[:SHOWN_MAX]:
        note(f"left to another process: {error}")
    _end(found.problems)


@app.command()
def verify(
    context: typer.Context,
    topic: TopicArgument,
    storage: StorageOption,
    master: MasterOption = "local[*]",
    output: OutputOption = None,
) -> None:
    """Prove that tables are sound and logs hold the same records. Exit status 1 if they do not."""
    common = Common.of(context, None, output)
    name = checked_topic(topic)
    _topic_folder(storage, name)
    with _job(master, name, "verify") as (spark, at):
        found = importlib.import_module("seaweedmq.spark.jobs").verify(spark, storage=storage, topic=name, progress=at)
    differences = [
        {"path": d.path, "offset": d.offset, "column": d.column, "difference": d.what} for d in found.differences
    ]
    if common.output is Output.JSON:
        fields = {"topic": name, "tables": found.tables, "records": found.records, "compared": found.compared}
        show_json({**fields, "is_sound": found.is_sound, "differences": differences})
    elif differences:
        show_rows(differences[:SHOWN_MAX], ["path", "offset", "column", "difference"], common.output)
    else:
        tables = f"{found.records:,} records in {found.tables:,} tables"
        say(f"{name} is sound: {tables}, and {found.compared:,} records in logs are the same")
    if differences:
        note(f"error: {len(differences)} files of {name} differ, the first is {differences[0]['path']}")
        raise typer.Exit(EXIT_FAILED)


@app.command()
def rebuild(
    context: typer.Context,
    topic: TopicArgument,
    storage: StorageOption,
    master: MasterOption = "local[*]",
    output: OutputOption = None,
) -> None:
    """Make missing and damaged tables again from the logs that are there, and the Delta log from the tables."""
    common = Common.of(context, None, output)
    name = checked_topic(topic)
    _topic_folder(storage, name)
    with _job(master, name, "rebuild") as (spark, at):
        found = importlib.import_module("seaweedmq.spark.jobs").rebuild(spark, storage=storage, topic=name, progress=at)
    fields = {
        "topic": name,
        "made": [table.path for table in found.made],
        "replaced": found.replaced,
        "problems": [str(error) for error in found.problems],
        "delta_version": found.version,
    }
    done = f"{name}: {len(found.made):,} tables were made again"
    show_done(fields, f"{done}, {len(found.replaced):,} in the place of damaged ones", common.output)
    _end(found.problems)


@app.command()
def history(context: typer.Context, topic: TopicArgument, storage: StorageOption, output: OutputOption = None) -> None:
    """Show the versions of the topic's Delta table, the newest first."""
    common = Common.of(context, None, output)
    name = checked_topic(topic)
    root = _topic_folder(storage, name)
    read = _wired("seaweedmq.storage.tables.delta_versions", "history")
    rows = [asdict(version) for version in reversed(read(root, TopicName.parse(name)))]
    columns = list(rows[0]) if rows else []
    show_rows(rows, columns, common.output, empty="no versions")


@app.command("import")
def import_(
    context: typer.Context,
    topic: TopicArgument,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Files or folders.", show_default=False)],
    storage: StorageOption,
    format_: Annotated[
        str, typer.Option("--format", metavar="parquet|csv|json", help="What the files are.")
    ] = "parquet",
    key: Annotated[str | None, typer.Option(metavar="COLUMN", help="What becomes the key.", show_default=False)] = None,
    timestamp: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What becomes the timestamp.", show_default=False)
    ] = None,
    master: MasterOption = "local[*]",
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Publish the rows of files to a topic, as fast as its brokers take them."""
    common = Common.of(context, bootstrap, output)
    name = checked_topic(topic)
    if format_ not in ("parquet", "csv", "json"):
        raise typer.BadParameter(f"format {format_!r} is not parquet, csv or json")
    with _job(master, name, "import") as (spark, at):
        import_files = _wired("seaweedmq.spark.jobs.importing", "import_files")
        rows = import_files(
            spark,
            paths,
            format_,
            name,
            common.bootstrap,
            storage,
            key=key,
            timestamp=timestamp,
            progress=lambda _, done, total: at(done, total),
        )
    show_done({"topic": name, "rows": rows}, f"imported {rows:,} rows into {name}", common.output)


@app.command()
def export(
    context: typer.Context,
    topic: TopicArgument,
    iceberg: Annotated[str, typer.Option(metavar="CATALOG", help="Where to register them.", show_default=False)],
    storage: StorageOption,
    output: OutputOption = None,
) -> None:
    """Register the topic's Parquet files with a catalog of Iceberg; nothing is copied."""
    common = Common.of(context, None, output)
    name = checked_topic(topic)
    root = _topic_folder(storage, name)
    done = _wired("seaweedmq.storage.iceberg", "export_iceberg")(root, TopicName.parse(name), iceberg)
    said = f"registered {done.files:,} files of {name} with {iceberg} as {done.table}"
    for column, why in done.left_out.items():
        said += f"\nleft out: {column}, {why}"
    show_done({"topic": name, "catalog": iceberg, **asdict(done)}, said, common.output)


def _topic_folder(storage: str, topic: str) -> Path:
    """Root of the storage, before Spark is started in vain.

    Raises:
        InvalidArgument: there is no such directory. NotFound: no such topic.
    """
    snapshot = importlib.import_module("seaweedmq.storage.snapshot")
    root = open_store(storage).root
    if not root.is_dir():
        raise InvalidArgument(f"storage {root} is not a directory: give the root that the brokers were started with")
    if TopicName.parse(topic) not in snapshot.list_topics(root):
        raise NotFound(f"no topic {topic} in {root}")
    return root


def _wired(module: str, name: str) -> Callable[..., Any]:
    """A function of a part that may need more than is installed.

    Raises:
        Unsupported: it does; the message says what to install.
    """
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"this needs the Python package {error.name}: pip install 'seaweedmq[iceberg,spark]'"
        ) from error
    return found


@contextlib.contextmanager
def _job(
    master: str, topic: str, what: str, unit: str = "MiB"
) -> "Iterator[tuple[SparkSession, Callable[[int, int], None]]]":
    """A session of Spark and a progress bar."""
    scale = MIB if unit == "MiB" else 1
    with _session(master, f"seaweedmq table {what} {topic}") as spark, progress(unit) as bars:
        bar = bars.add(f"{what} {topic}", None)

        def at(done: int, total: int) -> None:
            bar.of(total // scale)
            bar.at(done // scale)

        yield spark, at


@contextlib.contextmanager
def _session(master: str, name: str) -> "Iterator[SparkSession]":
    """Spark, quiet, ended at the end.

    Raises:
        Unsupported: PySpark or Java is missing or too old; the message says what to install.
    """
    try:
        pyspark = importlib.import_module("pyspark")
    except ModuleNotFoundError:
        raise Unsupported("table jobs run on Spark: pip install 'seaweedmq[spark]'") from None
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if version < PYSPARK_MIN:
        raise Unsupported(
            f"PySpark {pyspark.__version__} is too old: pip install 'pyspark>={'.'.join(map(str, PYSPARK_MIN))}'"
        )
    _check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = importlib.import_module("pyspark.sql").SparkSession.builder
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    if master.startswith("local"):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    builder = builder.master(master).appName(name)
    for setting, value in settings.items():
        builder = builder.config(setting, value)
    with tempfile.TemporaryFile() as said:
        try:
            with _stderr_into(said):
                spark = builder.getOrCreate()
        except Exception as error:
            raise Unsupported(
                f"Spark does not start with master {master!r} (it needs Java {JAVA_MIN} or later): "
                f"{_last_line(said) or _first_line(str(error))}"
            ) from error
    try:
        yield spark
    finally:
        spark.stop()


@contextlib.contextmanager
def _stderr_into(said: IO[bytes]) -> Iterator[None]:
    """Give what is started meanwhile another stderr: the JVM tells of its log, its modules and its hopes."""
    if os.environ.get("SEAWEEDMQ_DEBUG"):
        yield
        return
    sys.stderr.flush()
    own = os.dup(2)
    try:
        os.dup2(said.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _check_java() -> None:
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else shutil.which("java")
    if java is None or not Path(java).exists():
        raise Unsupported(
            f"Spark needs Java {JAVA_MIN} or later, and there is none: install one, like "
            f"openjdk-{JAVA_MIN}-jre-headless, and put it on PATH or set JAVA_HOME"
        )


def _end(problems: list[Exception]) -> None:
    """Exit status 1 if there are some, with the first of them."""
    if problems:
        more = f" (and {len(problems) - 1} more: --output json shows all)" if len(problems) > 1 else ""
        note(f"error: {problems[0]}{more}")
        raise typer.Exit(EXIT_FAILED)
