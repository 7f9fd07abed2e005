"""What Spark raises, in a sentence: around it are the tracebacks of two languages, and of all tasks that were tried."""

import re
from collections.abc import Iterator
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from seaweedmq.errors import ALL_KINDS, SeaweedMQError

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""Some of what fails in the JVM comes without a name in PySpark."""
_KINDS: Final = {kind.__name__: kind for kind in ALL_KINDS}
_OURS: Final = re.compile(r"^seaweedmq\.errors\.(\w+): (.+)$", re.MULTILINE)
"""In the traceback of a Python process that Spark started."""
_SPARKS: Final = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] (.+?)(?=\s+SQLSTATE: |\n\s*at |\n\n|\Z)", re.DOTALL)
"""Spark's error conditions."""
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (?!\[)(.+?)(?=\n\s*at |\n\n|\Z)", re.DOTALL | re.MULTILINE)
_NO_REASON: Final = "FAILED_READ_FILE.NO_HINT"
"""Names the file and leaves the reason to what caused it."""


def explain(error: BaseException) -> SeaweedMQError:
    """An error of ours that was raised somewhere in Spark, as what it was; else what Spark says itself."""
    texts = list(_chain(error))
    for text in texts:
        ours = [(kind, said) for kind, said in _OURS.findall(text) if kind in _KINDS]
        if ours:
            kind, message = ours[-1]  # the one that was raised from the others
            return _KINDS[kind](message)
    whole = "\n\n".join(texts)
    conditions = _SPARKS.findall(whole)
    said = [conditions[0][1]] if conditions else [texts[0].strip().partition("\n")[0]]
    if conditions and conditions[0][0] == _NO_REASON:
        reasons = [text for name, text in conditions if name != _NO_REASON] or _CAUSE.findall(whole) or texts[1:][-1:]
        said += reasons[-1:]
    return SeaweedMQError(f"Spark: {' '.join(' '.join(said).split())}")


def _chain(error: BaseException | None) -> Iterator[str]:
    """What was raised, and what that was raised from."""
    while error is not None:
        yield str(error)
        error = error.__cause__
