"""What Spark makes of the files, beside what it makes of plain Parquet: a module for each claim.

``python -m benchmarks --suite spark [--quick] [--part NAME]``
"""

from benchmarks.measure import Measure
from benchmarks.parts import run_parts
from benchmarks.scale import Scale

PARTS = ("reading", "compaction", "delta", "sink", "streaming")
"""Modules of this package, each with data of its own."""
QUICK_PARTS = ("reading", "delta")
"""Of a quick run, where no others are named: the rest start clusters or Spark again, and take minutes."""


def run(scale: Scale) -> list[Measure]:
    """Every part, or those that were named."""
    wanted = scale.parts or (QUICK_PARTS if scale.quick else PARTS)
    return run_parts("spark", [part for part in PARTS if part in wanted], scale)
