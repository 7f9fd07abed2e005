"""The table on the terminal and the JSON file."""

import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Measure


def print_table(measures: Sequence[Measure], console: Console) -> None:
    """Print one line per measure; yardsticks are dim."""
    table = Table(box=None, pad_edge=False)
    for name in ("measure", "value", "unit", "lowest", "highest", "ratio", "of", "target", ""):
        table.add_column(name, justify="right" if name in ("value", "lowest", "highest", "ratio") else "left")
    for measure in measures:
        own = measure.of != measure.name
        low, high = (_figure(bound) for bound in measure.spread) if measure.spread else ("", "")
        table.add_row(
            measure.name,
            _figure(measure.value),
            measure.unit,
            low,
            high,
            f"{measure.ratio:.2f}" if own else "",
            measure.of if own else "(yardstick)",
            measure.target or "",
            {True: "pass", False: "MISS", None: ""}[measure.met],
            style=None if own else "dim",
        )
    console.print(table)


def to_json(measures: Sequence[Measure]) -> dict[str, dict[str, object]]:
    """Return ``{measure: {"value", "unit", "of", "ratio", ...}}``."""
    return {measure.name: measure.to_json() for measure in measures}


def write_json(path: Path, found: dict[str, dict[str, object]]) -> None:
    """Write the report."""
    path.write_text(json.dumps(found, indent=2) + "\n")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"
