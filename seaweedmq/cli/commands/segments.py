"""Commands `seaweedmq segment ...`: list the segments of a topic, and change them manually."""

from typing import Annotated

import typer

from seaweedmq.cli.fields import segments_fields
from seaweedmq.cli.live.watch import read_stats
from seaweedmq.cli.options import Common, TopicArgument, checked_topic, common_options, option
from seaweedmq.cli.output import show_done, show_rows
from seaweedmq.model.description import TopicDescription

app = typer.Typer(help="List, split, merge, seal and move segments.", no_args_is_help=True)

COLUMNS = [
    "id",
    "slots",
    "state",
    "epoch",
    "brokers",
    "start_offset",
    "end_offset",
    "bytes_per_s",
    "records_per_s",
    "predecessors",
    "successors",
]

SegmentArgument = Annotated[int, typer.Argument(metavar="ID", min=0, help="Name an open segment.", show_default=False)]


@app.command("list")
@common_options
def list_(common: Common, topic: TopicArgument) -> None:
    """List the segments of a topic, open and sealed."""
    name = checked_topic(topic)
    with common.connect() as client:
        rows = segments_fields(client.admin.describe_topic(name), read_stats(client.admin, name))
    show_rows(rows, COLUMNS, common.output)


@app.command()
@common_options
def split(
    common: Common,
    topic: TopicArgument,
    segment: SegmentArgument,
    at: Annotated[
        int | None, option(metavar="SLOT", help="Set the first slot of the upper part (where the load halves).")
    ] = None,
) -> None:
    """Split a segment in two."""
    name = checked_topic(topic)
    with common.connect() as client:
        found = client.admin.split_segment(name, segment, at)
    _show(common, f"split {segment} into", found, segment)


@app.command()
@common_options
def merge(common: Common, topic: TopicArgument, first: SegmentArgument, second: SegmentArgument) -> None:
    """Merge two neighboring segments into one."""
    name = checked_topic(topic)
    with common.connect() as client:
        found = client.admin.merge_segments(name, first, second)
    _show(common, f"merged {first} and {second} into", found, first, second)


@app.command()
@common_options
def seal(common: Common, topic: TopicArgument, segment: SegmentArgument) -> None:
    """Seal a segment; a successor of the same range continues."""
    name = checked_topic(topic)
    with common.connect() as client:
        found = client.admin.seal_segment(name, segment)
    _show(common, f"sealed {segment}, followed by", found, segment)


@app.command()
@common_options
def move(
    common: Common,
    topic: TopicArgument,
    segment: SegmentArgument,
    brokers: Annotated[
        list[str],
        typer.Argument(
            metavar="BROKER", help="Name brokers by id or HOST:PORT, the primary first.", show_default=False
        ),
    ],
) -> None:
    """Move a segment's range to these brokers."""
    name = checked_topic(topic)
    with common.connect() as client:
        found = client.admin.move_segment(name, segment, brokers)
    _show(common, f"moved {segment}, followed by", found, segment)


def _show(common: Common, done: str, found: TopicDescription, *changed: int) -> None:
    """Print the successors of the changed segments, which they share; none if nothing had to change."""
    successors = next(s.successors for s in found.segments if s.id == changed[0])
    rows = [row for row in segments_fields(found) if row["id"] in successors]
    parts = [f"{row['id']} [{row['slots'][0]}, {row['slots'][1]}) at {', '.join(row['brokers'])}" for row in rows]
    fields = {"topic": str(found.topic.name), "segments": changed, "successors": rows}
    sentence = f"{done} {' and '.join(parts)}" if parts else f"segment {changed[0]} is already there"
    show_done(fields, sentence, common.output)
