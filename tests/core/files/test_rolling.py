"""Limits at which a log file is sealed: the topic's own, else the broker's."""

from dataclasses import replace

from seaweedmq.core.files.rolling import RollBounds, roll_bounds
from seaweedmq.model.config import MIB, BrokerConfig
from tests.support.segments import make_topic

CONFIG = BrokerConfig(log_roll_bytes=64 * MIB, log_roll_age_s=60.0, partition_roll_age_s=600.0)
RING = make_topic()
PARTS = replace(RING, partitions=4)


def test_partitions_have_larger_files_and_what_a_topic_says_wins_up_to_the_size_of_a_table() -> None:
    assert roll_bounds(RING, CONFIG) == RollBounds(size_bytes=64 * MIB, age_s=60.0)
    assert roll_bounds(PARTS, CONFIG) == RollBounds(size_bytes=64 * MIB, age_s=600.0)
    for topic in (RING, PARTS):
        own = replace(topic, configs=(("segment.bytes", "1048576"), ("segment.ms", "5000")))
        assert roll_bounds(own, CONFIG) == RollBounds(size_bytes=MIB, age_s=5.0)
        large = replace(topic, configs=(("segment.bytes", "1073741824"),))
        assert roll_bounds(large, CONFIG).size_bytes == 64 * MIB
