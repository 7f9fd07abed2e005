"""Application of the command `seaweedmq`, with all its subcommands."""

from collections import UserDict
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_group

from seaweedmq.cli.options import DEFAULT_BOOTSTRAP, Common
from seaweedmq.cli.output import Output

SUBCOMMANDS = {
    "publish": "publish",
    "subscribe": "subscribe",
    "up": "up",
    "broker": "broker",
    "topic": "topics",
    "segment": "segments",
    "group": "groups",
    "cluster": "cluster",
    "table": "table",
    "blobs": "blobs",
}
"""The module in ``seaweedmq.cli.commands`` of each subcommand, in the order of the help.

A module has a typer application ``app``, or a function of the subcommand's name.
"""


@cache
def _load(name: str, module_name: str) -> Any:
    module = import_module(f"seaweedmq.cli.commands.{module_name}")
    loaded = typer.Typer()
    if hasattr(module, "app"):
        loaded.add_typer(module.app, name=name)
    else:
        loaded.command(name)(getattr(module, name))
    return get_group(loaded).commands[name]


class _LazyCommands(UserDict[str, Any]):
    """The subcommands by name, each imported on first use.

    Imports take most of the time of a short command, and a command needs few of them.
    """

    def __getitem__(self, name: str) -> Any:
        return _load(name, self.data[name])


class _LazyGroup(TyperGroup):
    """The group of all subcommands."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _LazyCommands(SUBCOMMANDS)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the subcommands, without importing them."""
        return list(self.commands)


app = typer.Typer(
    name="seaweedmq",
    cls=_LazyGroup,
    help="A message broker cluster that keeps every topic as ordinary files.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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
