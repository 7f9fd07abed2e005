"""Extraction of one error sentence from Spark's exceptions.

Spark's own text carries the tracebacks of two languages and of every attempted task.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from seaweedmq.errors import ALL_KINDS, PayloadLost, SeaweedMQError

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""Exceptions that Spark raises; some failures in the JVM have no name in PySpark."""
_KINDS: Final[Mapping[str, type[SeaweedMQError]]] = {kind.__name__: kind for kind in (*ALL_KINDS, PayloadLost)}
_OURS: Final = re.compile(r"^seaweedmq\.errors\.(\w+): (.+)$", re.MULTILINE)
"""Pattern of a SeaweedMQ error in the traceback of a Python process that Spark started."""
_SPARKS: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.+?)(?=\s+SQLSTATE: |\n\s*at |\n\n|\Z)", re.DOTALL)
"""Pattern of Spark's error conditions."""
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (?!\[)(.+?)(?=\n\s*at |\n\n|\Z)", re.DOTALL | re.MULTILINE)
_NO_REASON: Final = "FAILED_READ_FILE.NO_HINT"
"""Condition that names the file and leaves the reason to its cause."""


def explain(error: BaseException) -> SeaweedMQError:
    """Return the SeaweedMQ error raised inside Spark, or else one with Spark's own message."""
    texts = list(_chain(error))
    for text in texts:
        ours = [(kind, said) for kind, said in _OURS.findall(text) if kind in _KINDS]
        if ours:
            kind, message = ours[-1]  # the last one was raised from the others
            return _KINDS[kind](message)
    whole = "\n\n".join(texts)
    conditions = _SPARKS.findall(whole)
    said = [conditions[0][1]] if conditions else [texts[0].strip().partition("\n")[0]]
    if conditions and conditions[0][0] == _NO_REASON:
        reasons = [text for name, text in conditions if name != _NO_REASON] or _CAUSE.findall(whole) or texts[1:][-1:]
        said += reasons[-1:]
    return SeaweedMQError(f"Spark: {' '.join(' '.join(said).split())}")


def _chain(error: BaseException | None) -> Iterator[str]:
    """Yield the texts of an exception and of its causes."""
    while error is not None:
        yield str(error)
        error = error.__cause__
