"""``python -m benchmarks [--quick] [--suite NAME] [--tier NAME] [--json FILE]``."""

import argparse
import contextlib
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path

from rich.console import Console

# Spark starts its JVM by fork, from a process in which gRPC is active: gRPC's work in the child may then end it.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

from benchmarks import report, scale
from benchmarks.contest.errors import Failed, Missing
from benchmarks.kafka import PARTS
from benchmarks.kafka_load.tiers import TIERS
from benchmarks.measure import Measure
from benchmarks.spark import PARTS as SPARK_PARTS
from seaweedmq.errors import SeaweedMQError

SUITES = (
    "publish",
    "send",
    "subscribe",
    "groups",
    "latency",
    "small",
    "replicas",
    "failures",
    "flood",
    "catchup",
    "spark",
    "topics",
    "open-segments",
    "startup",
    "memory",
    "balancer",
    "metadata",
    "neighbors",
)
ON_REQUEST = ("kafka", "kafka-load")
"""Suites that run only by name: they need Kafka clients, which are optional."""
NO_FIGURES = (AssertionError, Failed, Missing, SeaweedMQError, TimeoutError, subprocess.CalledProcessError)
"""Errors that end one suite whose cluster fails; the other suites continue."""


def main() -> int:
    """Run the suites one after another and report. Exit status 1 if a target is missed, or a suite has no figures."""
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # brokers and clients end with it
    names = options.suite or SUITES
    console = Console(width=None if sys.stdout.isatty() else 180)
    pictures = options.directory if options.json is None else options.json.parent
    sizes = (scale.quick if options.quick else scale.full)(options.directory, pictures)
    sizes = replace(
        sizes, parts=tuple(options.part), tier=options.tier, duration_s=options.duration, bootstrap=options.bootstrap
    )
    measures: list[Measure] = []
    missed: list[str] = []
    console.print(f"{os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f} before the start")
    for name in names:
        began = time.monotonic()
        try:
            with contextlib.redirect_stdout(sys.stderr):
                measures += importlib.import_module(f"benchmarks.{name.replace('-', '_')}").run(sizes)
        except NO_FIGURES:
            traceback.print_exc()
            missed.append(f"all of {name}")
        console.print(f"{name}: {time.monotonic() - began:.0f} s, load average {os.getloadavg()[0]:.1f}")
    console.print()
    report.print_table(measures, console)
    if options.json is not None:
        report.write_json(options.json, report.to_json(measures))
    missed += [measure.name for measure in measures if measure.met is False]
    console.print(f"\nmissed: {', '.join(missed)}" if missed else "\nevery target is met")
    return 1 if missed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, beside yardsticks.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, under 2 minutes in all")
    parser.add_argument(
        "--suite", action="append", choices=(*SUITES, *ON_REQUEST), help="only this one; may be repeated"
    )
    parser.add_argument(
        "--part", action="append", choices=(*PARTS, *SPARK_PARTS), default=[], help="of kafka or spark; may be repeated"
    )
    parser.add_argument("--tier", choices=TIERS, default="quick", help="how much of kafka-load (%(default)s)")
    parser.add_argument("--duration", type=float, metavar="SECONDS", help="of a tier, or of each of its steps")
    parser.add_argument("--bootstrap", metavar="HOST:PORT,...", help="a Kafka that runs, to be loaded by kafka-load")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the measures as one JSON object")
    parser.add_argument(
        "--directory",
        type=Path,
        default=Path(tempfile.gettempdir()),
        help="where data is kept meanwhile, on the disk to be measured (%(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
