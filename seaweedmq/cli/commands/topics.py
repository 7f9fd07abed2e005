"""`seaweedmq topic ...`: create, list, describe, alter, delete, delete-records."""

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from seaweedmq.cli.fields import description_fields, topic_fields
from seaweedmq.cli.live import watch
from seaweedmq.cli.options import (
    BootstrapOption,
    Common,
    OutputOption,
    TopicArgument,
    WatchOption,
    changed_configs,
    checked_topic,
    duration_s,
    records_per_s,
    size_bytes,
)
from seaweedmq.cli.output import Output, say, show_done, show_fields, show_json, show_rows
from seaweedmq.cli.records.schema import read_schema
from seaweedmq.model.topic import Durability, Scaling
from seaweedmq.model.topic_settings import AUTO_COMPACT

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
TargetBytesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE",
        help="What one segment should carry a second, like 16MiB; twice as much is split. none: as the cluster's "
        "settings say.",
        show_default=False,
    ),
]
TargetRecordsOption = Annotated[
    str | None, typer.Option(metavar="N", help="The same in records a second.", show_default=False)
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="A setting by the name it has in Kafka, like segment.ms=60000; NAME= removes it. May be given many times.",
        show_default=False,
    ),
]
AutoCompactOption = Annotated[
    bool | None,
    typer.Option(
        "--auto-compact/--no-auto-compact",
        help="Brokers merge its small Parquet files into larger ones, on the side (no).",
        show_default=False,
    ),
]
SEGMENT_COLUMNS = [
    "id",
    "slots",
    "state",
    "epoch",
    "brokers",
    "start_offset",
    "end_offset",
    "flushed_offset",
    "bytes_per_s",
    "records_per_s",
]


@app.command()
def create(
    context: typer.Context,
    topics: Annotated[list[str], typer.Argument(metavar="NAMESPACE/NAME...", help="The topics.", show_default=False)],
    segments: Annotated[int, typer.Option(min=1, help="Key ranges to begin with.")] = 1,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="Partitions as Kafka has them, instead of key ranges.", show_default=False),
    ] = None,
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
    target_bytes: TargetBytesOption = None,
    target_records: TargetRecordsOption = None,
    auto_compact: AutoCompactOption = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Create a topic, or several that are alike."""
    common = Common.of(context, bootstrap, output)
    names = [checked_topic(topic) for topic in topics]
    arrow_schema = read_schema(schema) if schema else None
    limits = _Limits.read(retention, retention_bytes, target_bytes, target_records)
    configs = changed_configs({}, with_auto_compact(config, auto_compact))
    with common.connect() as client:
        made = client.admin.create_topics(
            names,
            segments=segments,
            partitions=partitions,
            replicas=replicas,
            durability=durability,
            scaling=scaling,
            schema=arrow_schema,
            retention=limits.retention_s or None,
            retention_bytes=limits.retention_bytes or None,
            target_bytes_per_s=limits.target_bytes_per_s or None,
            target_records_per_s=limits.target_records_per_s or None,
            configs=configs,
        )
    if common.output is Output.JSON:
        fields = [description_fields(description) for description in made]
        show_json(fields if len(names) > 1 else fields[0])
        return
    count, what = (segments, "segment") if partitions is None else (partitions, "partition")
    for description in made:
        say(f"created {description.topic.name} with {count} {what}{'s' if count > 1 else ''}")


@app.command("list")
def list_(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the topics."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        rows = [topic_fields(topic) for topic in client.admin.list_topics()]
    columns = ["topic", "durability", "replicas", "scaling", "columns", "retention_s", "retention_bytes", "created"]
    show_rows(rows, columns, common.output, empty="no topics")


@app.command()
def describe(
    context: typer.Context,
    topic: TopicArgument,
    watching: WatchOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Show a topic and its segments."""
    common = Common.of(context, bootstrap, output)
    name = checked_topic(topic)
    with common.connect() as client:
        if watching:
            watch.topic(client.admin, name, common.output)
            return
        found, stats, decisions = watch.read_topic(client.admin, name)
    fields = description_fields(found, stats, decisions)
    if common.output is Output.JSON:
        show_json(fields)
        return
    segments = fields.pop("segments")
    show_fields(fields, common.output)
    say("")
    show_rows(segments, SEGMENT_COLUMNS, common.output)


@app.command()
def alter(
    context: typer.Context,
    topic: TopicArgument,
    durability: DurabilityOption = None,
    scaling: ScalingOption = None,
    retention: RetentionOption = None,
    retention_bytes: RetentionBytesOption = None,
    target_bytes: TargetBytesOption = None,
    target_records: TargetRecordsOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(min=1, help="How many there are to be: some are added, none is taken away.", show_default=False),
    ] = None,
    auto_compact: AutoCompactOption = None,
    config: ConfigOption = None,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Change a topic; what is not named stays as it is."""
    common = Common.of(context, bootstrap, output)
    changes = with_auto_compact(config, auto_compact)
    named = (durability, scaling, retention, retention_bytes, target_bytes, target_records, partitions)
    if all(each is None for each in named) and not changes:
        raise typer.BadParameter(
            "nothing to change: name --durability, --scaling, --retention, --retention-bytes, --target-bytes, "
            "--target-records, --partitions, --auto-compact or --config"
        )
    name = checked_topic(topic)
    limits = _Limits.read(retention, retention_bytes, target_bytes, target_records)
    changed_configs({}, changes)  # what is no NAME=VALUE is refused before anything is dialled
    with common.connect() as client:
        configs = None
        if changes:
            configs = changed_configs(dict(client.admin.describe_topic(name).topic.configs), changes)
        changed = client.admin.alter_topic(
            name,
            durability=durability,
            scaling=scaling,
            retention=limits.retention_s,
            retention_bytes=limits.retention_bytes,
            target_bytes_per_s=limits.target_bytes_per_s,
            target_records_per_s=limits.target_records_per_s,
            partitions=partitions,
            configs=configs,
        )
    show_fields(topic_fields(changed.topic), common.output)


@app.command()
def delete(
    context: typer.Context, topic: TopicArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Delete a topic and all its records."""
    common = Common.of(context, bootstrap, output)
    name = checked_topic(topic)
    with common.connect() as client:
        client.admin.delete_topic(name)
    show_done({"deleted": name}, f"deleted {name}", common.output)


@app.command("delete-records")
def delete_records(
    context: typer.Context,
    topic: TopicArgument,
    partition: Annotated[int, typer.Option(min=0, help="Its number.", show_default=False)],
    before: Annotated[
        int,
        typer.Option(
            min=0, metavar="OFFSET", help="The first offset that is kept, at most the end.", show_default=False
        ),
    ],
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Delete the records of a partition before an offset. Nobody is given them any more; their files go by and by."""
    common = Common.of(context, bootstrap, output)
    name = checked_topic(topic)
    with common.connect() as client:
        low = client.admin.delete_records(name, {partition: before})[partition]
    done = f"partition {partition} of {name} begins at offset {low}"
    show_done({"topic": name, "partition": partition, "low_watermark": low}, done, common.output)


def with_auto_compact(config: list[str] | None, auto_compact: bool | None) -> list[str]:
    """It is a setting by name; not to have it is to leave it out."""
    own = {None: [], True: [f"{AUTO_COMPACT}=true"], False: [f"{AUTO_COMPACT}="]}
    return [*(config or ()), *own[auto_compact]]


class _Limits(NamedTuple):
    """None: not named; 0: no limit, or no target of its own."""

    retention_s: float | None
    retention_bytes: int | None
    target_bytes_per_s: int | None
    target_records_per_s: float | None

    @classmethod
    def read(
        cls, retention: str | None, retention_bytes: str | None, target_bytes: str | None, target_records: str | None
    ) -> "_Limits":
        return cls(
            None if retention is None else duration_s(retention),
            None if retention_bytes is None else size_bytes(retention_bytes),
            None if target_bytes is None else size_bytes(target_bytes),
            None if target_records is None else records_per_s(target_records),
        )
