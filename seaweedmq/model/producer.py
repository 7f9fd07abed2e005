"""Who a frame is from: ranges of producer ids, and how Kafka's producers count."""

from typing import Final

NO_PRODUCER: Final = 0
"""Of frames whose producer has no identity: a repeat of one is not found out."""
KAFKA_PRODUCERS: Final = range(1_000, 2**48)
"""Ids that Kafka's InitProducerId hands out. Such a producer numbers its records once and for all in a partition, not
anew in each segment, and has no streams."""
NATIVE_PRODUCER_BIT: Final = 1 << 62
"""Set in ids that publishers of SeaweedMQ choose, so that they are none of Kafka's."""
KAFKA_SEQUENCES: Final = 2**31
"""Kafka's sequences begin again at 0 after the last of so many."""


def is_kafka_producer(producer_id: int) -> bool:
    """Whether Kafka's rules are for it."""
    return producer_id in KAFKA_PRODUCERS


def unwrapped(sequence: int, near: int) -> int:
    """A Kafka sequence, counted on over the end of the numbers: the one of its laps that is nearest to ``near``. Below
    0 if it lies before what ``near`` was counted from."""
    half = KAFKA_SEQUENCES // 2
    return near + (sequence - near + half) % KAFKA_SEQUENCES - half
