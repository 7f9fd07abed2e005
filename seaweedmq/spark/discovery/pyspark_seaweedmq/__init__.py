"""Discovery module by which Spark finds the format ``seaweedmq`` without registration.

Spark finds it by its name. It is installed at the top level, beside ``seaweedmq`` (see pyproject.toml). Spark imports
it in every process that looks up a format.
"""

from seaweedmq.spark.source import SeaweedMQSource as DefaultSource

__all__ = ["DefaultSource"]
