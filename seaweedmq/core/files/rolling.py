"""When a log file of a topic is sealed, so that it can become a table. Pure."""

from dataclasses import dataclass

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBounds:
    """A log file is sealed at either of them."""

    size_bytes: int
    age_s: float


def roll_bounds(topic: Topic, config: BrokerConfig) -> RollBounds:
    """What the topic says, else the broker. No file becomes larger than the broker's bound: it would be a table that
    is written in one go."""
    own = topic.settings
    usual_s = config.log_roll_age_s if topic.partitions is None else config.partition_roll_age_s
    return RollBounds(
        size_bytes=min(own.roll_bytes or config.log_roll_bytes, config.log_roll_bytes),
        age_s=usual_s if own.roll_age_s is None else own.roll_age_s,
    )
