"""Command line of the contest, and its output."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.contest.results import Failure, Results, Sample, read
from benchmarks.contest.rounds import equipped, play
from benchmarks.contest.suites import FULL, QUICK, SUITES
from benchmarks.contest.systems import SYSTEMS
from benchmarks.contest.table import markdown, put

ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; the exit status is 1 after any failure or wrong count."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that servers end and their data is deleted
    results = read(options.json) if options.render else _measured(options)
    table = markdown(results)
    if options.markdown is not None:
        options.markdown.write_text(put(options.markdown.read_text(), table))
    print(table)
    return 1 if results.failures else 0


def _measured(options: argparse.Namespace) -> Results:
    """Run the rounds. The JSON is written after every sample: an interrupted run keeps its findings."""
    results = equipped(options.systems, quick=options.quick)
    for name, missing in results.skipped.items():
        print(f"{name} does not take part: {missing}", file=sys.stderr)
    sizes = QUICK if options.quick else FULL
    rounds = options.rounds or (1 if options.quick else ROUNDS)
    for event in play(results, options.suites, sizes, rounds, options.directory):
        print(_line(event), file=sys.stderr, flush=True)
        if isinstance(event, Sample):
            results.samples.append(event)
        else:
            results.failures.append(event)
        if options.json is not None:
            results.write(options.json)
    return results


def _line(event: Sample | Failure) -> str:
    if isinstance(event, Failure):
        return f"round {event.turn} {event.system}, {event.suite}: FAILED: {event.error}"
    figures = ", ".join(f"{name} {value:,.6g}" for name, value in event.figures.items())
    return f"round {event.turn} {event.system}, {event.measure} {event.call}: {figures}"


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description="Ours beside others of its kind.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, one round: does it work?")
    for option, known in (("--systems", SYSTEMS), ("--suites", SUITES)):
        parser.add_argument(option, type=_names(list(known)), default=list(known), help=f"of {','.join(known)}")
    parser.add_argument("--rounds", type=int, help=f"{ROUNDS} by default, 1 with --quick")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all samples go")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="a file with marks for the table, as the README")
    parser.add_argument("--render", action="store_true", help="measure nothing, and make the table of what --json has")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where data is kept meanwhile, on the disk to be measured (%(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.render and options.json is None:
        parser.error("--render needs --json")
    return options


def _names(known: Sequence[str]) -> Callable[[str], list[str]]:
    def parse(text: str) -> list[str]:
        names = text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(known)}")
        return names

    return parse
