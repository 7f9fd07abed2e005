"""`seaweedmq group ...`: list, describe, reset, delete."""

from typing import Annotated, Any

import typer

from seaweedmq.cli.fields import group_fields, summary_fields
from seaweedmq.cli.options import BootstrapOption, Common, OutputOption, TopicArgument, checked_topic, parse_start
from seaweedmq.cli.output import Output, note, say, show_done, show_fields, show_json, show_rows
from seaweedmq.errors import Unavailable

app = typer.Typer(help="List, describe, reset and delete groups of subscribers.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group.", show_default=False)]
ForceOption = Annotated[bool, typer.Option("--force", help="Also while the group has members.")]

MEMBER_COLUMNS = ["member", "client", "connected", "segments"]
SEGMENT_COLUMNS = ["segment", "owner", "committed", "end_offset", "lag_records", "lag_s"]


@app.command("list")
def list_(context: typer.Context, bootstrap: BootstrapOption = None, output: OutputOption = None) -> None:
    """List the groups and the topics they read."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        rows = [summary_fields(summary) for summary in client.admin.list_groups()]
    show_rows(rows, ["group", "topic", "members", "generation"], common.output, empty="no groups")


@app.command()
def describe(
    context: typer.Context, group: GroupArgument, bootstrap: BootstrapOption = None, output: OutputOption = None
) -> None:
    """Show a group's members, what each owns, and how far it lags."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        found = client.admin.describe_group(group)
        try:
            lags_s = client.admin.group_lag_seconds(group)
        except Unavailable as error:  # the rest is worth knowing just then
            note(f"the lag in seconds is not known: {error}")
            lags_s = {}
    fields = group_fields(found, lags_s)
    if common.output is Output.JSON:
        show_json(fields)
        return
    topics = fields.pop("topics")
    show_fields(fields, common.output)
    for topic in topics:
        _show_topic(topic)


@app.command()
def reset(
    context: typer.Context,
    group: GroupArgument,
    topic: TopicArgument,
    to: Annotated[
        str,
        typer.Option(
            metavar="earliest|latest|offset:N|time:ISO8601",
            help="Where it reads from then on; times without zone are UTC.",
            show_default=False,
        ),
    ],
    force: ForceOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Have a group read a topic from another place; members that there are go on from there."""
    common = Common.of(context, bootstrap, output)
    begin = parse_start(to)
    name = checked_topic(topic)
    with common.connect() as client:
        found = client.admin.reset_group(group, name, begin, force)
    show_done(group_fields(found, {}), f"reset {group}: it reads {name} from {to}", common.output)


@app.command()
def delete(
    context: typer.Context,
    group: GroupArgument,
    force: ForceOption = False,
    bootstrap: BootstrapOption = None,
    output: OutputOption = None,
) -> None:
    """Forget a group and all its offsets."""
    common = Common.of(context, bootstrap, output)
    with common.connect() as client:
        client.admin.delete_group(group, force)
    show_done({"deleted": group}, f"deleted {group}", common.output)


def _show_topic(fields: dict[str, Any]) -> None:
    members, segments = fields.pop("members"), fields.pop("segments")
    say("")
    show_fields(fields, Output.TABLE)
    say("")
    show_rows(members, MEMBER_COLUMNS, Output.TABLE, empty="no members")
    say("")
    show_rows(segments, SEGMENT_COLUMNS, Output.TABLE, empty="no segments to read")
