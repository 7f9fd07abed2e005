"""Spark with a topic's files, beside Spark with plain Parquet: a module for each claim.

``python -m benchmarks --suite spark [--quick] [--part NAME]``
"""

from benchmarks.measure import Measure
from benchmarks.parts import run_parts
from benchmarks.scale import Scale

PARTS = ("reading", "compaction", "delta", "sink", "streaming")
"""Modules of this package, each with its own data."""
QUICK_PARTS = ("reading", "delta")
"""Parts of a quick run, unless others are named: the rest start clusters or Spark again, and take minutes."""


def run(scale: Scale) -> list[Measure]:
    """Run every part, or the named ones."""
    wanted = scale.parts or (QUICK_PARTS if scale.quick else PARTS)
    return run_parts("spark", [part for part in PARTS if part in wanted], scale)
