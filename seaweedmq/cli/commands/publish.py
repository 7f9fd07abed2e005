"""`seaweedmq publish`: records from a file or stdin into a topic."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Annotated

import pyarrow as pa
import typer

import seaweedmq
from seaweedmq.cli.options import BootstrapOption, Common, OutputOption, TopicArgument, checked_topic
from seaweedmq.cli.output import Bar, progress, show_done
from seaweedmq.cli.records.reading import InputFormat, check, tables
from seaweedmq.cli.records.source import Source, open_source
from seaweedmq.codec.csv_tables import Types, separator_of
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import InvalidArgument, SeaweedMQError

FLUSH_TIMEOUT_S = 120.0
GIVE_UP_TIMEOUT_S = 2.0


def publish(
    context: typer.Context,
    topic: TopicArgument,
    source: Annotated[str, typer.Option("--from", metavar="FILE|-", help="Where records come from; - is stdin.")] = "-",
    format_: Annotated[
        InputFormat, typer.Option("--format", help="lines: one record a line. The others name their columns.")
    ] = InputFormat.LINES,
    key: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Field or column that is the key.", show_default=False)
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option(
            metavar="CHARACTER",
            help="Between the columns of CSV (default: a comma), like ';' or tab.",
            show_default=False,
        ),
    ] = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Publish records and wait until all are acknowledged. A file is read to its end before its first record goes out.

    A pipe is published as it comes.
    """
    common = Common.of(context, bootstrap, output)
    if key is not None and format_ is InputFormat.LINES:
        raise typer.BadParameter("lines have no fields: use --format jsonl, csv, parquet or arrow", param_hint="--key")
    if separator is not None and format_ is not InputFormat.CSV:
        raise typer.BadParameter("it is for --format csv", param_hint="--separator")
    separator = None if separator is None else separator_of(separator)
    name = checked_topic(topic)
    began_s = time.monotonic()
    with open_source(source) as opened, common.connect() as client:
        found = client.admin.describe_topic(name).topic
        schema = None if found.schema is None else schema_from_bytes(found.schema)
        column = key if schema is not None or format_ is not InputFormat.JSONL else None
        shown = None if not opened.interactive else False
        with client.publisher(name) as publisher, progress("records", shown=shown) as bars:
            types = None
            if opened.size_bytes is not None:
                types = _checked(format_, opened, schema, key, separator, bars.add("checking", opened.size_bytes))
            bar = bars.add(f"publishing to {name}", opened.size_bytes)
            with _given_up_soon(publisher):
                parts = tables(format_, opened, schema, key, separator, types)
                records = _send(publisher, parts, column, opened, bar)
                publisher.flush(timeout=FLUSH_TIMEOUT_S)
    elapsed_s = time.monotonic() - began_s
    done = f"published {records} record{'' if records == 1 else 's'} to {name} in {elapsed_s:.2f} s"
    show_done({"topic": name, "records": records, "elapsed_s": round(elapsed_s, 3)}, done, common.output)


def _checked(
    kind: InputFormat, source: Source, schema: pa.Schema | None, key: str | None, separator: str | None, bar: Bar
) -> Types | None:
    """Call ``reading.check``; its error also says that nothing is published."""
    try:
        return check(kind, source, schema, key, separator, at=lambda: bar.at(0, position=source.position()))
    except InvalidArgument as error:
        raise InvalidArgument(f"{error} (nothing is published)") from error


def _send(
    publisher: "seaweedmq.Publisher", parts: Iterable[pa.Table], key: str | None, source: Source, bar: Bar
) -> int:
    records = 0
    try:
        for table in parts:
            publisher.send_table(table, key=key)
            records += table.num_rows
            bar.at(records, position=source.position())
    except InvalidArgument as error:
        # What came before the bad record is sent already: say how far it got.
        publisher.flush(timeout=FLUSH_TIMEOUT_S)
        rest = "publish what follows them once it is corrected" if records else "publish all once it is corrected"
        raise InvalidArgument(f"{error} (the first {records} records are published: {rest})") from error
    return records


@contextlib.contextmanager
def _given_up_soon(publisher: "seaweedmq.Publisher") -> Iterator[None]:
    """After Ctrl-C or a failure, wait only a moment for the acknowledgements that closing would wait for in full."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(SeaweedMQError):
            publisher.close(timeout=GIVE_UP_TIMEOUT_S)
        raise
