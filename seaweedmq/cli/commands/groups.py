"""Commands `seaweedmq group ...`: list, describe, reset and delete groups of both kinds."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from seaweedmq.cli.fields import group_fields, kafka_group_fields, kafka_summary_fields, summary_fields
from seaweedmq.cli.options import Common, TopicArgument, checked_topic, common_options, option, parse_start
from seaweedmq.cli.output import Output, note, say, show_done, show_fields, show_json, show_rows, show_sections
from seaweedmq.errors import InvalidArgument, NotFound, Unavailable
from seaweedmq.model.kafka.group_admin import GroupKind
from seaweedmq.model.topic import check_name

if TYPE_CHECKING:
    from seaweedmq import Client

R = TypeVar("R")

app = typer.Typer(
    help="List, describe, reset and delete groups of subscribers and of Kafka consumers.", no_args_is_help=True
)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="Name the group.", show_default=False)]
ForceOption = Annotated[
    bool, typer.Option("--force", help="Proceed even if the group has members (no); not for Kafka groups.")
]
KindOption = Annotated[GroupKind | None, option(help="Choose between two groups of that name (native).")]

LIST_COLUMNS = ["group", "kind", "topic", "members", "generation", "state"]
MEMBER_COLUMNS = ["member", "client", "connected", "segments"]
SEGMENT_COLUMNS = ["segment", "owner", "committed", "end_offset", "lag_records", "lag_s"]
KAFKA_MEMBER_COLUMNS = ["member", "instance", "client", "partitions"]
KAFKA_OFFSET_COLUMNS = ["topic", "partition", "owner", "committed", "end_offset", "lag_records"]


@app.command("list")
@common_options
def list_(common: Common) -> None:
    """List the groups: those of subscribers with their topics, and those of Kafka consumers."""
    with common.connect() as client:
        rows = [summary_fields(summary) for summary in client.admin.list_groups()]
        try:
            rows += [kafka_summary_fields(summary) for summary in client.admin.list_kafka_groups()]
        except Unavailable as error:  # the rest is useful without them
            note(f"Kafka groups are unknown: {error}")
    show_rows(rows, LIST_COLUMNS, common.output, empty="no groups")


@app.command()
@common_options
def describe(common: Common, group: GroupArgument, kind: KindOption = None) -> None:
    """Show a group's members, their segments or partitions, and its lag."""

    def native(client: "Client") -> None:
        found = client.admin.describe_group(group)
        try:
            lags_s = client.admin.group_lag_seconds(group)
        except Unavailable as error:  # the rest is useful without it
            note(f"the lag in seconds is unknown: {error}")
            lags_s = {}
        fields = group_fields(found, lags_s)
        if common.output is Output.JSON:
            show_json(fields)
            return
        topics = fields.pop("topics")
        show_fields(fields, common.output)
        members, segments = (MEMBER_COLUMNS, "no members"), (SEGMENT_COLUMNS, "no segments to read")
        for topic in topics:
            say("")
            show_sections(topic, {"members": members, "segments": segments}, common.output)

    def kafka(client: "Client") -> None:
        fields = kafka_group_fields(client.admin.describe_kafka_group(group))
        members, offsets = (KAFKA_MEMBER_COLUMNS, "no members"), (KAFKA_OFFSET_COLUMNS, "no offsets")
        show_sections(fields, {"members": members, "offsets": offsets}, common.output)

    _of_kind(common, group, kind, native, kafka)


@app.command()
@common_options
def reset(
    common: Common,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str,
        option(
            metavar="earliest|latest|offset:N|time:ISO8601",
            help="Set the next offset to read; times without zone are UTC.",
        ),
    ],
    force: ForceOption = False,
    kind: KindOption = None,
) -> None:
    """Reset a group's offsets in a topic; its members continue from there."""
    begin = parse_start(to)
    name = checked_topic(topic)
    fields = _of_kind(
        common,
        group,
        kind,
        lambda client: group_fields(client.admin.reset_group(group, name, begin, force), {}),
        lambda client: kafka_group_fields(client.admin.reset_kafka_group(group, name, begin)),
    )
    show_done(fields, f"reset {group}: it reads {name} from {to}", common.output)


@app.command()
@common_options
def delete(common: Common, group: GroupArgument, force: ForceOption = False, kind: KindOption = None) -> None:
    """Delete a group and all its offsets."""
    _of_kind(
        common,
        group,
        kind,
        lambda client: client.admin.delete_group(group, force),
        lambda client: client.admin.delete_kafka_group(group),
    )
    show_done({"deleted": group}, f"deleted {group}", common.output)


def _of_kind(
    common: Common, group: str, kind: GroupKind | None, native: "Callable[[Client], R]", kafka: "Callable[[Client], R]"
) -> R:
    """Call the function of the group's kind: the named kind, else native, else Kafka."""
    with common.connect() as client:
        kind = kind or _kind_of(client, group)
        return kafka(client) if kind is GroupKind.KAFKA else native(client)


def _kind_of(client: "Client", group: str) -> GroupKind:
    """Return the kind of a group if the user names none; depends on existing groups, not on the command."""
    if not _may_be_native(group):
        return GroupKind.KAFKA
    try:
        client.admin.describe_group(group)
    except NotFound:
        is_kafkas = any(known.group == group for known in client.admin.list_kafka_groups())
        return GroupKind.KAFKA if is_kafkas else GroupKind.NATIVE
    return GroupKind.NATIVE


def _may_be_native(group: str) -> bool:
    try:
        check_name("group name", group)
    except InvalidArgument:
        return False
    return True
