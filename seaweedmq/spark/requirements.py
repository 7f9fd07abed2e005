"""Checks of what Spark needs on this machine."""

import importlib.metadata
import os
import re
import shutil

from seaweedmq.errors import Unsupported

PYSPARK_MIN = (4, 1)
JAVA_MIN = 17
_INSTALL = "pip install 'seaweedmq[spark]'"


def check_pyspark() -> None:
    """Raise Unsupported unless PySpark 4.1 or newer is installed."""
    try:
        found = importlib.metadata.version("pyspark")
    except importlib.metadata.PackageNotFoundError:
        raise Unsupported(f"seaweedmq.spark needs PySpark 4.1 or newer, which is not installed: {_INSTALL}") from None
    numbers = re.match(r"(\d+)\.(\d+)", found)
    if numbers is None or tuple(map(int, numbers.groups())) < PYSPARK_MIN:
        raise Unsupported(f"seaweedmq.spark needs PySpark 4.1 or newer, {found} is installed: {_INSTALL} --upgrade")


def check_java() -> None:
    """Raise Unsupported without ``java``, before a session is created: Spark needs it, and pip does not bring it."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"  # noqa: PTH118 - what Spark's scripts do
    if shutil.which(java) is None:
        where = f"JAVA_HOME is {home}" if home else "PATH has no java"
        raise Unsupported(
            f"Spark needs Java {JAVA_MIN} or newer, and {where}: install it (Debian, Ubuntu: apt-get install "
            f"openjdk-{JAVA_MIN}-jre-headless; macOS: brew install openjdk@{JAVA_MIN})"
        )
