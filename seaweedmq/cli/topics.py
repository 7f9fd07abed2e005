"""`seaweedmq topic ...`: create, list, describe, alter, delete."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import typer

from seaweedmq.cli.options import (
    BootstrapOption,
    Common,
    OutputOption,
    TopicArgument,
    duration_s,
    size_bytes,
    topic_name,
)
from seaweedmq.cli.output import Output, say, show_fields, show_json, show_rows
from seaweedmq.cli.schema import read_schema
from seaweedmq.codec.batch import schema_from_bytes
from seaweedmq.model.protocol import SegmentStats, TopicDescription
from seaweedmq.model.topic import Durability, Scaling, Topic

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

DurabilityOption = Annotated[
    Durability | None,
    typer.Option(
        help="When a record counts as kept (stored with one replica, replicated with more).", show_default=False
    ),
]
ScalingOption = Annotated[
    Scaling | None, typer.Option(help="May the cluster split and merge its segments (auto)?", show_default=False)
]
RetentionOption = Annotated[
    str | None,
    typer.Option(metavar="DURATION", help="Keep records this long, like 7d; none: for ever.", show_default=False),
]
RetentionBytesOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Keep this much a topic, like 10GiB; none: no limit.", show_default=False),
]


@app.command()
def create(
    context: typer.Context,
    topic: TopicArgument,
    segments: Annotated[int, typer.Option(min=1, help="Key ranges to begin with.")] = 1,
    replicas: Annotated[int, typer.Option(min=1, help="Brokers that hold each record until it is a file.")] = 1,
    durability: DurabilityOption = None,
    scaling: ScalingOption = None,
    schema: Annotated[
        Path | None,
        typer.Option(
            help='Columns of its records: a Parquet or Arrow file, or JSON like {"id": "int64", "name": "string"}.',
            show_default=False,
        ),
    ] = None,
    retention: RetentionOption = None,
    retention_bytes: RetentionBytesOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Create a topic."""
    common = Common.of(context, bootstrap, output)
    name = topic_name(topic)
    arrow_schema = read_schema(schema) if schema else None
    limits = _limits(retention, retention_bytes)
    with common.connect() as client:
        made = client.admin.create_topic(
            name,
            segments=segments,
            replicas=replicas,
            durability=durability,
            scaling=scaling or Scaling.AUTO,
            schema=arrow_schema,
            retention=limits[0] or None,
            retention_bytes=limits[1] or None,
        )
    if common.output is Output.JSON:
        show_json(_description_fields(made, ()))
    else:
        say(f"created {name} with {segments} segment{'s' if segments > 1 else ''}")


@app.command("list")
def list_(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the topics."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        rows = [_topic_fields(topic) for topic in client.admin.list_topics()]
    columns = ["topic", "durability", "replicas", "scaling", "columns", "retention_s", "retention_bytes", "created"]
    show_rows(rows, columns, common.output, empty="no topics")


@app.command()
def describe(
    context: typer.Context, topic: TopicArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show a topic and its segments."""
    common = Common.of(context, bootstrap, output)
    name = topic_name(topic)
    with common.connect() as client:
        found = client.admin.describe_topic(name)
        stats = client.admin.topic_stats(name)
    fields = _description_fields(found, stats)
    if common.output is Output.JSON:
        show_json(fields)
        return
    segments = fields.pop("segments")
    show_fields(fields, common.output)
    say("")
    columns = [
        "id",
        "slots",
        "state",
        "epoch",
        "brokers",
        "start_offset",
        "end_offset",
        "flushed_offset",
        "bytes_per_s",
    ]
    show_rows(segments, columns, common.output)


@app.command()
def alter(
    context: typer.Context,
    topic: TopicArgument,
    durability: DurabilityOption = None,
    scaling: ScalingOption = None,
    retention: RetentionOption = None,
    retention_bytes: RetentionBytesOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Change a topic; what is not named stays as it is."""
    common = Common.of(context, bootstrap, output)
    if (durability, scaling, retention, retention_bytes) == (None, None, None, None):
        raise typer.BadParameter("nothing to change: name --durability, --scaling, --retention or --retention-bytes")
    name = topic_name(topic)
    limits = _limits(retention, retention_bytes)
    with common.connect() as client:
        changed = client.admin.alter_topic(
            name, durability=durability, scaling=scaling, retention=limits[0], retention_bytes=limits[1]
        )
    show_fields(_topic_fields(changed.topic), common.output)


@app.command()
def delete(
    context: typer.Context, topic: TopicArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Delete a topic and all its records."""
    common = Common.of(context, bootstrap, output)
    name = topic_name(topic)
    with common.connect() as client:
        client.admin.delete_topic(name)
    if common.output is Output.JSON:
        show_json({"deleted": name})
    else:
        say(f"deleted {name}")


def _limits(retention: str | None, retention_bytes: str | None) -> tuple[float | None, int | None]:
    return (
        None if retention is None else duration_s(retention),
        None if retention_bytes is None else size_bytes(retention_bytes),
    )


def _topic_fields(topic: Topic) -> dict[str, Any]:
    schema = _schema(topic)
    return {
        "topic": str(topic.name),
        "durability": topic.durability.value,
        "replicas": topic.replicas,
        "scaling": topic.scaling.value,
        "columns": None if schema is None else [f"{field.name}: {field.type}" for field in schema],
        "retention_s": topic.retention_s,
        "retention_bytes": topic.retention_bytes,
        "created": datetime.fromtimestamp(topic.created_us / 1e6, UTC).isoformat(timespec="seconds"),
    }


def _schema(topic: Topic) -> pa.Schema | None:
    return None if topic.schema is None else schema_from_bytes(topic.schema)


def _description_fields(found: TopicDescription, stats: tuple[SegmentStats, ...]) -> dict[str, Any]:
    by_segment = {s.segment: s for s in stats}
    segments = []
    for segment in found.segments:
        live = by_segment.get(segment.id)
        segments.append(
            {
                "id": segment.id,
                "slots": [segment.slots.lo, segment.slots.hi],
                "state": segment.state.value,
                "epoch": segment.epoch,
                "brokers": [found.addresses.get(broker, broker) for broker in segment.replicas],
                "predecessors": segment.predecessors,
                "successors": segment.successors,
                "start_offset": segment.start_offset,
                "end_offset": live.high_watermark if live else segment.end_offset,
                "flushed_offset": live.flushed_offset if live else segment.end_offset,
                "bytes_per_s": live.bytes_per_s if live else 0.0,
                "records_per_s": live.records_per_s if live else 0.0,
            }
        )
    return _topic_fields(found.topic) | {"segments": segments}
