"""Commands `seaweedmq topic ...`: create, list, describe, alter, delete, delete-records."""

from pathlib import Path
from typing import Annotated, Any

import typer

from seaweedmq.cli.fields import description_fields, topic_fields
from seaweedmq.cli.live import watch
from seaweedmq.cli.options import (
    Common,
    TopicArgument,
    WatchOption,
    changed_configs,
    checked_topic,
    common_options,
    duration_s,
    option,
    records_per_s,
    size_bytes,
)
from seaweedmq.cli.output import Output, say, show_done, show_fields, show_json, show_rows, show_sections
from seaweedmq.model.topic import Durability, Scaling
from seaweedmq.model.topic_settings import AUTO_COMPACT

app = typer.Typer(help="Create, list, describe, alter and delete topics.", no_args_is_help=True)

DurabilityOption = Annotated[
    Durability | None, option(help="Set when a record is acknowledged (stored with one replica, replicated with more).")
]
ScalingOption = Annotated[Scaling | None, option(help="Let the cluster split and merge segments (auto).")]
RetentionOption = Annotated[
    str | None, option(metavar="DURATION", help="Keep records this long, like 7d; none: no limit.")
]
RetentionBytesOption = Annotated[
    str | None, option(metavar="SIZE", help="Keep this many bytes of a topic, like 10GiB; none: no limit.")
]
TargetBytesOption = Annotated[
    str | None,
    option(
        metavar="SIZE",
        help="Set the target bytes per second of a segment, like 16MiB; twice as much is split. none: the cluster's "
        "setting.",
    ),
]
TargetRecordsOption = Annotated[
    str | None, option(metavar="N", help="Set the target records per second of a segment, likewise.")
]
ConfigOption = Annotated[
    list[str] | None,
    option(
        "--config",
        metavar="NAME=VALUE",
        help="Set a Kafka setting by name, like segment.ms=60000; NAME= removes it. May be repeated.",
    ),
]
AutoCompactOption = Annotated[
    bool | None,
    option(
        "--auto-compact/--no-auto-compact",
        help="Let brokers merge small Parquet files into larger ones in the background (no).",
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
@common_options
def create(
    common: Common,
    topics: Annotated[
        list[str], typer.Argument(metavar="NAMESPACE/NAME...", help="Name the topics.", show_default=False)
    ],
    segments: Annotated[int, typer.Option(min=1, help="Set the initial number of key ranges.")] = 1,
    partitions: Annotated[
        int | None, option(min=1, help="Set the number of Kafka partitions, instead of key ranges.")
    ] = None,
    replicas: Annotated[
        int, typer.Option(min=1, help="Set the number of brokers that hold each record until it is in a file.")
    ] = 1,
    durability: DurabilityOption = None,
    scaling: ScalingOption = None,
    schema: Annotated[
        Path | None,
        option(help='Read the columns from a Parquet or Arrow file, or JSON like {"id": "int64", "name": "string"}.'),
    ] = None,
    retention: RetentionOption = None,
    retention_bytes: RetentionBytesOption = None,
    target_bytes: TargetBytesOption = None,
    target_records: TargetRecordsOption = None,
    auto_compact: AutoCompactOption = None,
    config: ConfigOption = None,
) -> None:
    """Create a topic, or several with the same settings."""
    names = [checked_topic(topic) for topic in topics]
    arrow_schema = None
    if schema:
        from seaweedmq.cli.records.schema import read_schema  # lazy: Arrow takes long to load

        arrow_schema = read_schema(schema)
    limits = _limits(retention, retention_bytes, target_bytes, target_records)
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
            configs=configs,
            **{name: limit or None for name, limit in limits.items()},
        )
    if common.output is Output.JSON:
        fields = [description_fields(description) for description in made]
        show_json(fields if len(names) > 1 else fields[0])
        return
    count, what = (segments, "segment") if partitions is None else (partitions, "partition")
    for description in made:
        say(f"created {description.topic.name} with {count} {what}{'s' if count > 1 else ''}")


@app.command("list")
@common_options
def list_(common: Common) -> None:
    """List the topics."""
    with common.connect() as client:
        rows = [topic_fields(topic) for topic in client.admin.list_topics()]
    columns = ["topic", "durability", "replicas", "scaling", "columns", "retention_s", "retention_bytes", "created"]
    show_rows(rows, columns, common.output, empty="no topics")


@app.command()
@common_options
def describe(common: Common, topic: TopicArgument, watching: WatchOption = False) -> None:
    """Show a topic and its segments."""
    name = checked_topic(topic)
    with common.connect() as client:
        if watching:
            watch.topic(client.admin, name, common.output)
            return
        found, stats, decisions = watch.read_topic(client.admin, name)
    fields = description_fields(found, stats, decisions)
    show_sections(fields, {"segments": (SEGMENT_COLUMNS, "none")}, common.output)


@app.command()
@common_options
def alter(
    common: Common,
    topic: TopicArgument,
    durability: DurabilityOption = None,
    scaling: ScalingOption = None,
    retention: RetentionOption = None,
    retention_bytes: RetentionBytesOption = None,
    target_bytes: TargetBytesOption = None,
    target_records: TargetRecordsOption = None,
    partitions: Annotated[int | None, option(min=1, help="Set the number of partitions; it can only grow.")] = None,
    auto_compact: AutoCompactOption = None,
    config: ConfigOption = None,
) -> None:
    """Change the named settings of a topic; others stay."""
    changes = with_auto_compact(config, auto_compact)
    named = (durability, scaling, retention, retention_bytes, target_bytes, target_records, partitions)
    if all(each is None for each in named) and not changes:
        raise typer.BadParameter(
            "nothing to change: name --durability, --scaling, --retention, --retention-bytes, --target-bytes, "
            "--target-records, --partitions, --auto-compact or --config"
        )
    name = checked_topic(topic)
    limits = _limits(retention, retention_bytes, target_bytes, target_records)
    changed_configs({}, changes)  # rejects a malformed NAME=VALUE before a connection is opened
    with common.connect() as client:
        configs = None
        if changes:
            configs = changed_configs(dict(client.admin.describe_topic(name).topic.configs), changes)
        changed = client.admin.alter_topic(
            name, durability=durability, scaling=scaling, partitions=partitions, configs=configs, **limits
        )
    show_fields(topic_fields(changed.topic), common.output)


@app.command()
@common_options
def delete(common: Common, topic: TopicArgument) -> None:
    """Delete a topic and all its records."""
    name = checked_topic(topic)
    with common.connect() as client:
        client.admin.delete_topic(name)
    show_done({"deleted": name}, f"deleted {name}", common.output)


@app.command("delete-records")
@common_options
def delete_records(
    common: Common,
    topic: TopicArgument,
    partition: Annotated[int, option(min=0, help="Set the number of the partition.")],
    before: Annotated[int, option(min=0, metavar="OFFSET", help="Set the first offset to keep, at most the end.")],
) -> None:
    """Delete the records of a partition before an offset.

    They are never delivered again; their files are removed later.
    """
    name = checked_topic(topic)
    with common.connect() as client:
        low = client.admin.delete_records(name, {partition: before})[partition]
    done = f"partition {partition} of {name} begins at offset {low}"
    show_done({"topic": name, "partition": partition, "low_watermark": low}, done, common.output)


def with_auto_compact(config: list[str] | None, auto_compact: bool | None) -> list[str]:
    """Return the settings with auto-compact, which is a setting by name; without it, the setting is left out."""
    own = {None: [], True: [f"{AUTO_COMPACT}=true"], False: [f"{AUTO_COMPACT}="]}
    return [*(config or ()), *own[auto_compact]]


def _limits(
    retention: str | None, retention_bytes: str | None, target_bytes: str | None, target_records: str | None
) -> dict[str, Any]:
    """Return the limits as arguments of the admin API; None: not named, 0: removed. Raises typer.BadParameter."""
    return {
        "retention": None if retention is None else duration_s(retention),
        "retention_bytes": None if retention_bytes is None else size_bytes(retention_bytes),
        "target_bytes_per_s": None if target_bytes is None else size_bytes(target_bytes),
        "target_records_per_s": None if target_records is None else records_per_s(target_records),
    }
