"""Options that every command has, and parsers of their values; they raise typer.BadParameter for any other text."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Concatenate, Literal, ParamSpec

import typer

import seaweedmq
from seaweedmq.cli.output import Output
from seaweedmq.model.topic import TopicName

P = ParamSpec("P")
DEFAULT_BOOTSTRAP = "127.0.0.1:17777"


def option(*names: str, **declared: Any) -> Any:
    """Declare an option whose help says its default itself, if it has one."""
    return typer.Option(*names, show_default=False, **declared)


BootstrapOption = Annotated[
    str | None,
    option(
        "--bootstrap",
        metavar="HOST:PORT[,HOST:PORT]",
        help=f"Set the brokers to contact first; any will do (SEAWEEDMQ_BOOTSTRAP, else {DEFAULT_BOOTSTRAP}).",
    ),
]
OutputOption = Annotated[Output | None, option("--output", "-o", help="Set the format of results (table).")]
WatchOption = Annotated[bool, typer.Option("--watch", help="Refresh every second until Ctrl-C.")]
TopicArgument = Annotated[str, typer.Argument(metavar="NAMESPACE/NAME", help="Name the topic.", show_default=False)]
SeparatorOption = Annotated[
    str | None, option(metavar="CHARACTER", help="Set the separator of CSV columns, like ';' or tab (comma).")
]


class OnMissing(StrEnum):
    """The behavior where records are lost, which neither retention nor a low watermark removed."""

    FAIL = "fail"
    SKIP = "skip"


OnMissingOption = Annotated[
    OnMissing, typer.Option("--on-missing", help="Stop where records are lost (fail), or continue behind them (skip).")
]


@dataclass(frozen=True, slots=True)
class Common:
    """The options that every command has, before or after its name."""

    bootstrap: str
    output: Output

    def connect(self) -> "seaweedmq.Client":
        """Return a client of the cluster; raises Unavailable if no broker answers."""
        return seaweedmq.connect(self.bootstrap)


def common_options(command: Callable[Concatenate[Common, P], None]) -> Callable[..., None]:
    """Add the options that every command has; the command gets them as its first argument."""
    return _with_options(command, bootstrap=BootstrapOption, output=OutputOption)


def output_option(command: Callable[Concatenate[Common, P], None]) -> Callable[..., None]:
    """Add the common options without ``--bootstrap``, for a command that needs no broker."""
    return _with_options(command, output=OutputOption)


def _with_options(command: Callable[..., None], **added: Any) -> Callable[..., None]:
    @functools.wraps(command)
    def run(
        context: typer.Context, *, bootstrap: str | None = None, output: Output | None = None, **arguments: Any
    ) -> None:
        before = context.find_root().obj
        command(Common(bootstrap or before.bootstrap, output or before.output), **arguments)

    signature = inspect.signature(command)
    common, *own = signature.parameters.values()
    options = [common.replace(name=name, annotation=kind, default=None) for name, kind in added.items()]
    parameters = [common.replace(name="context", annotation=typer.Context), *own, *options]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    return run


def checked_topic(text: str) -> str:
    """Return a topic name, checked before a connection is opened."""
    return str(TopicName.parse(text))


_DURATION_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def duration_s(text: str) -> float:
    """Parse a duration into seconds: ``90s``, ``15m``, ``12h``, ``7d``, ``2w``, seconds, or ``none`` (0: no limit)."""
    if text == "none":
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?", text, re.ASCII)
    if match is None:
        raise typer.BadParameter(f"duration {text!r} is not a number with a unit ms, s, m, h, d or w: write it like 7d")
    return float(match[1]) * _DURATION_S[match[2] or "s"]


_SIZE_BYTES = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def size_bytes(text: str) -> int:
    """Parse a size into bytes: ``1000000``, ``64MiB``, ``10GiB``, or ``none`` (0: no limit)."""
    if text == "none":
        return 0
    match = re.fullmatch(r"(\d+)(B|KiB|MiB|GiB|TiB)?", text, re.ASCII)
    if match is None:
        raise typer.BadParameter(f"size {text!r} is not a number of bytes: write it like 1000000 or 10GiB")
    return int(match[1]) * _SIZE_BYTES[match[2] or ""]


def records_per_s(text: str) -> float:
    """Parse a rate in records per second, like ``5000``, or ``none`` (0: the cluster's setting)."""
    if text == "none":
        return 0.0
    if re.fullmatch(r"\d+(?:\.\d+)?", text, re.ASCII) is None:
        raise typer.BadParameter(f"rate {text!r} is not a number of records per second: write it like 5000")
    return float(text)


def changed_configs(before: Mapping[str, str], changes: Iterable[str]) -> dict[str, str]:
    """Return settings by name after changes: ``NAME=VALUE`` sets one, and ``NAME=`` removes it."""
    configs = dict(before)
    for change in changes:
        name, equals, value = change.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"setting {change!r} is not NAME=VALUE: write it like segment.ms=60000")
        if value:
            configs[name] = value
        else:
            configs.pop(name, None)
    return configs


def parse_start(text: str) -> Literal["earliest", "latest"] | int | datetime:
    """Parse ``earliest``, ``latest``, ``offset:N`` or ``time:ISO8601``; a time without zone is UTC."""
    kind, _, value = text.partition(":")
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    if kind == "offset" and value.isascii() and value.isdigit():
        return int(value)
    if kind == "time":
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise typer.BadParameter(
                f"start {text!r} has no valid time: write it like time:2026-01-31T12:00:00Z"
            ) from None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    raise typer.BadParameter(f"start {text!r} is not earliest, latest, offset:N or time:ISO8601")
