"""Output of the command line: tables or JSON on stdout, one-line errors and progress on stderr."""

import json
import os
import select
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import typer

from seaweedmq.errors import SeaweedMQError
from seaweedmq.runtime.printable import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import Progress, TaskID

EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
PIPE_WIDTH_COLUMNS = 100_000
"""Width of a table outside a terminal: enough that nothing is cut or wrapped."""

Row = Mapping[str, Any]


class Output(StrEnum):
    """The format of results."""

    TABLE = "table"
    JSON = "json"


def write(data: bytes) -> None:
    """Write all of ``data`` to stdout, past the buffer of this process; OSError if stdout takes no more.

    When it returns, the data is in the file or pipe of stdout. Otherwise it leaves no rest that the interpreter would
    write at its exit, where a failure has no effect and a full pipe blocks. A closed reader ends the program quietly:
    it has what it wanted.
    """
    try:
        sys.stdout.flush()
        _write_all(getattr(sys.stdout.buffer, "raw", sys.stdout.buffer), data)
    except BrokenPipeError:
        # The rest of the buffer would raise again when the interpreter closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except OSError as error:
        raise OSError(error.errno, error.strerror, "<stdout>") from error


class _RawOutput(Protocol):
    """The part of ``io.RawIOBase`` that writing needs."""

    def write(self, data: memoryview, /) -> int | None: ...

    def fileno(self) -> int: ...


def _write_all(output: _RawOutput, data: bytes) -> None:
    """Repeat short writes: a raw file writes as much as a signal, a pipe or a nearly full disk lets it."""
    rest = memoryview(data)
    while rest:
        count = output.write(rest)
        if count is None:  # a non-blocking descriptor, which a parent process may share with this one
            select.select([], [output.fileno()], [])
        else:
            rest = rest[count:]


def say(text: str) -> None:
    """Write one or more lines to stdout."""
    write(printable(text, "\n").encode() + b"\n")


def note(text: str) -> None:
    """Write one line to stderr, for a person."""
    print(one_line(text), file=sys.stderr, flush=True)


def one_line(text: str) -> str:
    """Return the text as one printable line."""
    return printable(" ".join(text.split()))


def show_json(value: Any) -> None:
    """Write a value to stdout as one line of printable JSON."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():  # JSON does not escape everything that a terminal obeys
        text = "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
    write(text.encode() + b"\n")


def show_rows(rows: Sequence[Row], columns: Sequence[str], output: Output, *, empty: str = "none") -> None:
    """Print rows as a table with these columns, or as a JSON list of whole rows."""
    if output is Output.JSON:
        show_json(list(rows))
    elif not rows:
        say(empty)
    else:
        # Lazy import: JSON and single lines need no tables.
        from rich.table import Table

        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in columns:
            table.add_column(column, no_wrap=True)
        for row in rows:
            table.add_row(*(cell(row[column]) for column in columns))
        show(table)


def show_fields(fields: Row, output: Output) -> None:
    """Print one object: a line per field, or a JSON object."""
    if output is Output.JSON:
        show_json(fields)
    else:
        width = max(map(len, fields))
        for name, value in fields.items():
            say(f"{name:<{width}}  {cell(value)}")


def show_sections(fields: dict[str, Any], sections: Mapping[str, tuple[Sequence[str], str]], output: Output) -> None:
    """Print one object whose fields in ``sections`` are rows: a line per field, then tables; or a JSON object.

    ``sections`` has the columns of each table, and the text for no rows; without that text the table is left out.
    """
    if output is Output.JSON:
        show_json(fields)
        return
    rows = {name: fields.pop(name) for name in sections}
    show_fields(fields, output)
    for name, (columns, empty) in sections.items():
        if rows[name] or empty:
            say("")
            show_rows(rows[name], columns, output, empty=empty)


def show_done(fields: Row, sentence: str, output: Output) -> None:
    """Print the result of a command: a sentence, or a JSON object."""
    if output is Output.JSON:
        show_json(fields)
    else:
        say(sentence)


def cell(value: Any) -> str:
    """Format a value for a person, as in a table's cell."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, list | tuple):
        return printable(", ".join(map(str, value))) or "-"
    if isinstance(value, Mapping):
        return printable(", ".join(f"{name}={each}" for name, each in value.items())) or "-"
    return printable(str(value))


def show(what: "RenderableType") -> None:
    """Print a rich renderable; plain and unwrapped if stdout is not a terminal."""
    from rich.console import Console  # lazy, as the table above

    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else PIPE_WIDTH_COLUMNS, markup=False, highlight=False)
    with console.capture() as captured:
        console.print(what)
    write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()).encode())


def fail(message: str, *, status: int = EXIT_FAILED) -> NoReturn:
    """End the program with one line on stderr."""
    note(f"error: {message}")
    raise SystemExit(status)


@contextmanager
def progress(unit: str, *, shown: bool | None = None) -> Iterator["Bars"]:
    """Show progress bars with counts in ``unit`` on stderr during a block; by default, if stderr is a terminal."""
    # Lazy import: few commands have progress to show.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        TextColumn("{task.fields[count]:,} " + unit),
        TextColumn("{task.fields[rate]:,.0f}/s"),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
        disable=not (sys.stderr.isatty() if shown is None else shown),
    ) as bars:
        yield Bars(bars)


class Bars:
    """The progress bars, below one another."""

    def __init__(self, bars: "Progress") -> None:
        self._bars = bars

    def add(self, what: str, total: float | None) -> "Bar":
        """Add a bar that is full at ``total``; None is an unknown total."""
        return Bar(self._bars, self._bars.add_task(what, total=total, count=0, rate=0.0))


class Bar:
    """One progress bar, which counts up."""

    def __init__(self, bars: "Progress", task: "TaskID") -> None:
        self._bars = bars
        self._task = task

    def of(self, total: float) -> None:
        """Set the total at which the bar is full."""
        self._bars.update(self._task, total=total)

    def at(self, count: float, *, position: float | None = None) -> None:
        """Show ``count``, with the bar at ``position`` of its total (default: ``count``)."""
        elapsed_s = self._bars.tasks[self._bars.task_ids.index(self._task)].elapsed or 0.0
        rate = count / elapsed_s if elapsed_s else 0.0
        self._bars.update(self._task, completed=count if position is None else position, count=count, rate=rate)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn exceptions into one line on stderr and an exit status.

    A defect keeps its kind's name, and its traceback if SEAWEEDMQ_DEBUG=1.
    """
    try:
        yield
    except SeaweedMQError as error:
        fail(str(error) or error.code)
    except KeyboardInterrupt:
        raise SystemExit(EXIT_INTERRUPTED) from None
    except Exception as error:
        import pyarrow as pa  # lazy: few commands need Arrow

        if isinstance(error, pa.ArrowCancelled):  # Arrow handles Ctrl-C while it reads
            raise SystemExit(EXIT_INTERRUPTED) from None
        if isinstance(error, OSError | pa.ArrowException):
            fail(str(error) or type(error).__name__)
        # Not in sys.excepthook, which typer overrides.
        if os.environ.get("SEAWEEDMQ_DEBUG"):
            raise
        fail(f"internal: {type(error).__name__}: {error} (set SEAWEEDMQ_DEBUG=1 for the traceback)")
