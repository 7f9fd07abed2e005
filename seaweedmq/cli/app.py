"""Application of the command `seaweedmq`, with all its subcommands."""

from typing import Annotated

import typer

from seaweedmq.cli.commands import broker, cluster, groups, publish, segments, subscribe, table, topics, up
from seaweedmq.cli.options import DEFAULT_BOOTSTRAP, Common
from seaweedmq.cli.output import Output

app = typer.Typer(
    name="seaweedmq",
    help="A message broker cluster that keeps every topic as ordinary files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(topics.app, name="topic")
app.add_typer(segments.app, name="segment")
app.add_typer(groups.app, name="group")
app.add_typer(cluster.app, name="cluster")
app.add_typer(table.app, name="table")
app.command("publish")(publish.publish)
app.command("subscribe")(subscribe.subscribe)
app.command("up")(up.up)
app.command("broker")(broker.broker)


@app.callback()
def common(
    context: typer.Context,
    bootstrap: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT[,HOST:PORT]",
            help="Set the brokers to contact first; any will do.",
            envvar="SEAWEEDMQ_BOOTSTRAP",
        ),
    ] = DEFAULT_BOOTSTRAP,
    output: Annotated[Output, typer.Option("--output", "-o", help="Set the format of results.")] = Output.TABLE,
) -> None:
    """Store the options that every command has; they may also follow the command's name."""
    context.obj = Common(bootstrap, output)
