"""Producer identities: ranges of producer ids, and the sequences of Kafka producers."""

from typing import Final

NO_PRODUCER: Final = 0
"""Producer id of frames without identity, whose repeats are not detected."""
KAFKA_PRODUCERS: Final = range(1_000, 2**48)
"""Ids that Kafka's InitProducerId returns. Such a producer numbers its records once for a partition, not in each
segment, and has no streams."""
NATIVE_PRODUCER_BIT: Final = 1 << 62
"""Bit of the ids that SeaweedMQ publishers choose, which keeps them apart from Kafka's."""
KAFKA_SEQUENCES: Final = 2**31
"""Number of Kafka sequences; they wrap around to 0 after it."""


def is_kafka_producer(producer_id: int) -> bool:
    """Whether Kafka's rules apply to the producer."""
    return producer_id in KAFKA_PRODUCERS


def unwrapped(sequence: int, near: int) -> int:
    """Return the value nearest to ``near`` of a Kafka sequence that wraps around; negative before the first one."""
    half = KAFKA_SEQUENCES // 2
    return near + (sequence - near + half) % KAFKA_SEQUENCES - half
