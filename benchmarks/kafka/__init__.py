"""What Kafka's clients get of us, beside native clients of the same cluster, and beside Apache Kafka.

``python -m benchmarks --suite kafka [--quick] [--part NAME]``
"""

import importlib
import subprocess
import sys
import traceback

from benchmarks.contest.errors import Failed
from benchmarks.contest.server import require_module
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.scale import Scale
from seaweedmq.errors import SeaweedMQError

PARTS = ("throughput", "beside", "latency", "catchup", "commits", "members", "failover", "idle")
"""Modules of this package, each with clusters of its own."""
ALL = "parts of the suite kafka"


def run(scale: Scale) -> list[Measure]:
    """Every part, or those that were named; one that fails is counted, and the others go on. Raises Missing."""
    for name in ("confluent_kafka", "kafka", "aiokafka"):
        require_module(name)
    measures: list[Measure] = []
    failed: dict[str, str] = {}
    names = scale.parts or PARTS
    for name in names:
        print(f"kafka: {name}", file=sys.stderr, flush=True)
        try:
            measures += importlib.import_module(f"benchmarks.kafka.{name}").run(scale)
        except (AssertionError, Failed, OSError, SeaweedMQError, subprocess.CalledProcessError) as error:
            traceback.print_exc()
            failed[name] = f"{type(error).__name__}: {error}"
    total = [float(len(names))]
    counted = compared(
        "kafka_parts_without_figures", [float(len(failed))], "parts", ALL, total, value_max=0, reasons=failed
    )
    return [*measures, yardstick(ALL, total, "parts"), counted]
