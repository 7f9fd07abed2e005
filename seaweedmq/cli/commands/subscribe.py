"""Command `seaweedmq subscribe`: records of a topic to stdout."""

import signal
import sys
from enum import StrEnum
from types import FrameType
from typing import Annotated, NoReturn

import pyarrow as pa
import typer

from seaweedmq.cli import options
from seaweedmq.cli.output import progress, write
from seaweedmq.cli.records import json_out


class PrintFormat(StrEnum):
    """The format of printed records."""

    JSONL = "jsonl"
    RAW = "raw"


@options.common_options
def subscribe(
    common: options.Common,
    topic: options.TopicArgument,
    group: Annotated[
        str | None,
        options.option(
            metavar="GROUP", help="Share the topic with the other members of this group, and resume where it stopped."
        ),
    ] = None,
    start: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|offset:N|time:ISO8601",
            help="Set the first offset to read (of a group: only at its creation); times without zone are UTC.",
        ),
    ] = "earliest",
    limit: Annotated[int | None, options.option(min=1, help="Stop after N records.")] = None,
    format_: Annotated[
        PrintFormat,
        typer.Option(
            "--format",
            help="Set the format of records. jsonl: all fields, with NaN, Infinity and -Infinity as texts, which JSON "
            "lacks; raw: each value and a newline.",
        ),
    ] = PrintFormat.JSONL,
    follow: Annotated[
        bool, typer.Option("--follow", help="Wait for new records instead of stopping at the last (no).")
    ] = False,
    on_missing: options.OnMissingOption = options.OnMissing.FAIL,
) -> None:
    """Print the records of a topic: the existing ones or, with --follow, also new ones as they come.

    A member of a group acknowledges the printed records, and commits them when it ends in any way.
    """
    begin = options.parse_start(start)
    text_of = _raw if format_ is PrintFormat.RAW else json_out.lines
    name = options.checked_topic(topic)
    if group is not None:
        signal.signal(signal.SIGTERM, _leave)
    with common.connect() as client:
        # Records on a terminal are progress enough.
        shown = False if sys.stdout.isatty() else None
        records = 0
        with (
            client.subscriber(
                name,
                group=group,
                start=begin,
                limit=limit,
                stop_at=None if follow else "latest",
                on_missing=on_missing.value,
            ) as subscriber,
            progress("records", shown=shown) as bars,
        ):
            bar = bars.add(f"reading {name}", limit)
            for batch in subscriber.batches():
                write(text_of(batch))
                subscriber.ack(batch)
                records += batch.num_rows
                bar.at(records)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit by SystemExit, so that a stopped member commits and leaves, and others need not wait for its timeout."""
    raise SystemExit(128 + number)


def _raw(batch: pa.RecordBatch) -> bytes:
    if json_out.is_plain(batch):
        return b"\n".join([value or b"" for value in batch.column("_value").to_pylist()]) + b"\n"
    return "".join(f"{text}\n" for text in json_out.row_texts(batch, marked=False)).encode()
