"""By its name Spark finds this module, and by that the format ``seaweedmq``: nobody has to register it.

It is installed at the top level, beside ``seaweedmq`` (see pyproject.toml). Spark imports it in every process that
looks a format up.
"""

from seaweedmq.spark.source import SeaweedMQSource as DefaultSource

__all__ = ["DefaultSource"]
