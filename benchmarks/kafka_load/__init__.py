"""Real Kafka clients under load: librdkafka's producers and groups, Avro records, every record accounted for.

``python -m benchmarks --suite kafka-load --tier quick|standard|stress|endurance [--duration S] [--bootstrap SERVERS]``
"""

from benchmarks.contest.server import require_module
from benchmarks.measure import Measure
from benchmarks.scale import Scale


def run(scale: Scale) -> list[Measure]:
    """Run the tier that ``scale`` names. Raises Missing without Kafka's client."""
    for name in ("confluent_kafka", "fastavro"):
        require_module(name)
    # Here, so that other suites need no Kafka client.
    from benchmarks.kafka_load.run import play

    return play(scale)
