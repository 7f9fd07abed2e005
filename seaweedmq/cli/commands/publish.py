"""Command `seaweedmq publish`: records from a file or stdin, or whole files by reference, into a topic."""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated

import pyarrow as pa
import typer

import seaweedmq
from seaweedmq.cli.options import Common, SeparatorOption, TopicArgument, checked_topic, common_options, option
from seaweedmq.cli.output import Bar, progress, show_done
from seaweedmq.cli.records.reading import InputFormat, check, check_table, tables
from seaweedmq.cli.records.source import Source, open_source
from seaweedmq.client.publish.futures import TableFuture
from seaweedmq.client.publish.uploads.sources import FileSource
from seaweedmq.codec.imports.csv_columns import Types
from seaweedmq.codec.imports.csv_text import separator_of
from seaweedmq.codec.topic_schema import schema_from_bytes
from seaweedmq.errors import InvalidArgument, SeaweedMQError

FLUSH_TIMEOUT_S = 120.0
GIVE_UP_TIMEOUT_S = 2.0


@common_options
def publish(
    common: Common,
    topic: TopicArgument,
    more: Annotated[list[str] | None, typer.Argument(metavar="", hidden=True)] = None,
    source: Annotated[
        str, typer.Option("--from", metavar="FILE|-", help="Read records from a file, or - for stdin.")
    ] = "-",
    format_: Annotated[
        InputFormat,
        typer.Option(
            "--format", help="Set the format of the input; lines is one record per line, the others name columns."
        ),
    ] = InputFormat.LINES,
    key: Annotated[
        str | None,
        option(metavar="FIELD", help="Use this field or column as the key; with --file, this text itself."),
    ] = None,
    files: Annotated[
        list[str] | None,
        option("--file", metavar="PATH...", help="Upload these files, each the payload of one record."),
    ] = None,
    separator: SeparatorOption = None,
) -> None:
    """Publish records and wait until all are acknowledged.

    A file is checked to its end before its first record is published. A pipe is published as it comes.
    """
    if files:
        if source != "-" or format_ is not InputFormat.LINES or separator is not None:
            raise typer.BadParameter("files are published as they are, without --from, --format or --separator")
        _publish_files(common, checked_topic(topic), [*files, *(more or ())], key)
        return
    if more:
        raise typer.BadParameter(f"unexpected {more[0]!r}: to upload files, name them after --file")
    if key is not None and format_ is InputFormat.LINES:
        raise typer.BadParameter("lines have no fields: use --format jsonl, csv, parquet or arrow", param_hint="--key")
    if separator is not None and format_ is not InputFormat.CSV:
        raise typer.BadParameter("it needs --format csv", param_hint="--separator")
    separator = None if separator is None else separator_of(separator)
    name = checked_topic(topic)
    began_s = time.monotonic()
    with open_source(source) as opened, common.connect() as client:
        described = client.admin.describe_topic(name)
        found, frame_bytes_max = described.topic, described.known_frame_bytes_max
        schema = None if found.schema is None else schema_from_bytes(found.schema)
        column = key if schema is not None or format_ is not InputFormat.JSONL else None
        shown = None if not opened.interactive else False
        with client.publisher(name) as publisher, progress("records", shown=shown) as bars:
            types = None
            if opened.size_bytes is not None:
                checking = bars.add("checking", opened.size_bytes)
                types = _checked(format_, opened, schema, key, separator, frame_bytes_max, checking)
            bar = bars.add(f"publishing to {name}", opened.size_bytes)
            with _given_up_soon(publisher):
                parts = tables(format_, opened, schema, key, separator, types)
                if opened.size_bytes is None:
                    parts = _fitting(format_, opened, parts, schema, column, frame_bytes_max)
                records = send(publisher, parts, column, lambda count: bar.at(count, position=opened.position()))
    elapsed_s = time.monotonic() - began_s
    done = f"published {records} record{'' if records == 1 else 's'} to {name} in {elapsed_s:.2f} s"
    show_done({"topic": name, "records": records, "elapsed_s": round(elapsed_s, 3)}, done, common.output)


def _publish_files(common: Common, name: str, paths: Sequence[str], key: str | None) -> None:
    """Upload files and publish a record for each, in their order; nothing is published if one cannot be read."""
    sizes = [FileSource(path).size_bytes for path in paths]
    began_s, done_bytes = time.monotonic(), 0
    with common.connect() as client, client.publisher(name) as publisher, progress("files") as bars:
        bar = bars.add(f"publishing to {name}", sum(sizes))
        with _given_up_soon(publisher):
            sent = [publisher.send_file(path, key=None if key is None else key.encode()) for path in paths]
            for count, (future, size_bytes) in enumerate(zip(sent, sizes, strict=True), 1):
                future.result()
                done_bytes += size_bytes
                bar.at(count, position=done_bytes)
    elapsed_s = time.monotonic() - began_s
    done = f"published {len(paths)} file{'' if len(paths) == 1 else 's'} to {name} in {elapsed_s:.2f} s"
    fields = {"topic": name, "records": len(paths), "bytes": sum(sizes), "elapsed_s": round(elapsed_s, 3)}
    show_done(fields, done, common.output)


def _checked(
    kind: InputFormat,
    source: Source,
    schema: pa.Schema | None,
    key: str | None,
    separator: str | None,
    frame_bytes_max: int,
    bar: Bar,
) -> Types | None:
    """Call ``reading.check``, and add to its error that nothing is published."""
    try:
        return check(
            kind,
            source,
            schema,
            key,
            separator,
            frame_bytes_max=frame_bytes_max,
            at=lambda: bar.at(0, position=source.position()),
        )
    except InvalidArgument as error:
        raise InvalidArgument(f"{error} (nothing is published)") from error


def _fitting(
    kind: InputFormat,
    source: Source,
    parts: Iterable[pa.Table],
    schema: pa.Schema | None,
    key: str | None,
    frame_bytes_max: int,
) -> Iterator[pa.Table]:
    """Yield the tables of a pipe, each checked by ``reading.check_table`` before it is sent, if it may exceed a frame.

    Publishing checks everything except the size.
    """
    records = 0
    for table in parts:
        if 2 * table.nbytes > frame_bytes_max:
            check_table(kind, source, table, schema, key, records, frame_bytes_max)
        records += table.num_rows
        yield table


def send(
    publisher: "seaweedmq.Publisher", parts: Iterable[pa.Table], key: str | None, at: Callable[[int], None]
) -> int:
    """Publish tables, wait until all are acknowledged, and return the number of records; ``at`` gets that sent so far.

    An InvalidArgument for a table or record also has the number of published records, and how to continue.
    """
    records = 0
    sent: deque[tuple[int, TableFuture]] = deque()
    """Tables that may still fail, with the number of records before each."""
    try:
        for table in parts:
            sent.append((records, publisher.send_table(table, key=key)))
            records += table.num_rows
            at(records)
            while sent and sent[0][1].done():
                sent[0][1].result()  # raises its error, before the rest of a pipe is read in vain
                sent.popleft()
        publisher.flush(timeout=FLUSH_TIMEOUT_S)
    except InvalidArgument as error:
        # The records before the bad one are already sent: report how many.
        with contextlib.suppress(SeaweedMQError):
            publisher.flush(timeout=FLUSH_TIMEOUT_S)
        raise InvalidArgument(f"{error} ({_published(records, sent)})") from error
    return records


def _published(records: int, sent: Iterable[tuple[int, TableFuture]]) -> str:
    """Return a sentence about how many records are published, and how to continue."""
    whole = next((before for before, each in sent if not each.done() or each.exception() is not None), records)
    if whole < records:
        return (
            f"the first {whole} records are published, and only some of the next {records - whole}: find those that "
            "are missing, correct the record, and publish these and the rest"
        )
    rest = "correct the next one and publish the rest" if records else "correct the input and publish it all"
    return f"the first {records} records are published: {rest}"


@contextlib.contextmanager
def _given_up_soon(publisher: "seaweedmq.Publisher") -> Iterator[None]:
    """Wait only briefly for acknowledgements after Ctrl-C or a failure; closing would wait for all."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(SeaweedMQError):
            publisher.close(timeout=GIVE_UP_TIMEOUT_S)
        raise
