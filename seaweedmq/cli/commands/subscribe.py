"""Command `seaweedmq subscribe`: records of a topic to stdout."""

import signal
import sys
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated, NoReturn

import pyarrow as pa
import typer

import seaweedmq
from seaweedmq.cli import options
from seaweedmq.cli.output import Bar, note, progress, say, write
from seaweedmq.cli.records import json_out
from seaweedmq.errors import InvalidArgument, PayloadLost


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
    save_to: Annotated[
        Path | None,
        typer.Option(
            "--save-to",
            metavar="DIR",
            help="Save each value to a file in this folder, named after its key, and print the name. A lost payload by "
            "reference fails, or with --on-missing skip is reported.",
        ),
    ] = None,
) -> None:
    """Print the records of a topic: the existing ones or, with --follow, also new ones as they come.

    A member of a group acknowledges the printed or saved records, and commits them when it ends in any way.
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
            if save_to is not None:
                _save(subscriber, save_to, bar, on_missing)
                return
            for batch in subscriber.batches():
                write(text_of(batch))
                subscriber.ack(batch)
                records += batch.num_rows
                bar.at(records)


def _save(subscriber: "seaweedmq.Subscriber", folder: Path, bar: Bar, on_missing: options.OnMissing) -> None:
    if subscriber.schema is not None:
        raise InvalidArgument(f"topic {subscriber.topic} has a schema, so its records have no value: drop --save-to")
    # Lazy import: few calls save files.
    from seaweedmq.cli.records.saving import SaveFolder

    with SaveFolder(folder) as saved:
        for records, message in enumerate(subscriber, 1):
            try:
                name = saved.save(message)
            except PayloadLost as error:
                if on_missing is options.OnMissing.FAIL:
                    raise
                note(f"record {message.offset} of segment {message.segment} is skipped: {error}")
            else:
                if name is not None:
                    say(name)
            subscriber.ack(message)
            bar.at(records)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit by SystemExit, so that a stopped member commits and leaves, and others need not wait for its timeout."""
    raise SystemExit(128 + number)


def _raw(batch: pa.RecordBatch) -> bytes:
    if json_out.is_plain(batch):
        return b"\n".join([value or b"" for value in batch.column("_value").to_pylist()]) + b"\n"
    return "".join(f"{text}\n" for text in json_out.row_texts(batch, marked=False)).encode()
