"""What Spark raises, in a sentence: around it are the tracebacks of two languages, and of all tasks that were tried."""

import re
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from seaweedmq.errors import ALL_KINDS, SeaweedMQError

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""Some of what fails in the JVM comes without a name in PySpark."""
_KINDS: Final = {kind.__name__: kind for kind in ALL_KINDS}
_OURS: Final = re.compile(r"^seaweedmq\.errors\.(\w+): (.+)$", re.MULTILINE)
"""In the traceback of a Python process that Spark started."""
_SPARKS: Final = re.compile(r"\[[A-Z][A-Z0-9_.]+\] (.+?)(?=\s+SQLSTATE: |\n\s*at |\n\n|\Z)", re.DOTALL)
"""The first of Spark's error conditions, without its name."""


def told(error: Exception) -> SeaweedMQError:
    """An error of ours that was raised somewhere in Spark, as what it was; else what Spark says itself."""
    text = str(error)
    ours = [(kind, said) for kind, said in _OURS.findall(text) if kind in _KINDS]
    if ours:
        kind, said = ours[-1]  # the one that was raised from the others
        return _KINDS[kind](said)
    sparks = _SPARKS.search(text)
    said = sparks[1] if sparks else text.strip().partition("\n")[0]
    return SeaweedMQError(f"Spark: {' '.join(said.split())}")
