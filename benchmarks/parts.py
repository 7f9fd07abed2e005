"""Suites in parts: a part that fails is counted, and the others continue."""

import importlib
import subprocess
import sys
import traceback
from collections.abc import Sequence

from benchmarks.contest.errors import Failed
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.errors import SeaweedMQError


def run_parts(suite: str, names: Sequence[str], scale: Scale) -> list[Measure]:
    """Return the measures of ``benchmarks.<suite>.<name>``, one after another, and the number of failed parts."""
    measures: list[Measure] = []
    failed: dict[str, str] = {}
    for name in names:
        print(f"{suite}: {name}", file=sys.stderr, flush=True)
        try:
            measures += importlib.import_module(f"benchmarks.{suite}.{name}").run(scale)
        except (AssertionError, Failed, OSError, SeaweedMQError, subprocess.CalledProcessError) as error:
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
    of, total = f"parts of the suite {suite}", [float(len(names))]
    counted = compared(
        f"{suite}_parts_without_figures", [float(len(failed))], "parts", of, total, value_max=0, reasons=failed
    )
    return [*measures, yardstick(of, total, "parts"), counted]
