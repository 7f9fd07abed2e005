"""Throughput and latency of Kafka clients, beside native clients of the same cluster, and beside Apache Kafka.

``python -m benchmarks --suite kafka [--quick] [--part NAME]``
"""

from benchmarks.contest.server import require_module
from benchmarks.measure import Measure
from benchmarks.parts import run_parts
from benchmarks.scale import Scale

PARTS = ("throughput", "beside", "latency", "catchup", "commits", "members", "failover", "idle")
"""Modules of this package, each with its own clusters."""


def run(scale: Scale) -> list[Measure]:
    """Run every part, or the named ones. Raises Missing."""
    for name in ("confluent_kafka", "kafka", "aiokafka"):
        require_module(name)
    return run_parts("kafka", scale.parts or PARTS, scale)
