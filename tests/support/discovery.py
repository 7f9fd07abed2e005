"""Setup that lets Spark find the format as in an installed package."""

import os
import pkgutil
from pathlib import Path

import seaweedmq

FOLDER = Path(seaweedmq.__file__).parent / "spark" / "discovery"


def as_installed() -> None:
    """Put the directory of ``pyspark_seaweedmq`` on the path of Spark's workers, unless it is installed there."""
    if not any(module.name == "pyspark_seaweedmq" for module in pkgutil.iter_modules()):
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(FOLDER), os.environ.get("PYTHONPATH")]))
