"""The bounds at which a topic's log file is sealed, so that it can be converted to a table."""

from dataclasses import dataclass

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import Topic


@dataclass(frozen=True, slots=True, kw_only=True)
class RollBounds:
    """The bounds of a log file, which is sealed at either of them."""

    size_bytes: int
    age_s: float


def roll_bounds(topic: Topic, config: BrokerConfig) -> RollBounds:
    """Return the topic's bounds, or the broker's where the topic has none.

    No file exceeds the broker's size bound, since it is converted to a table in one go.
    """
    own = topic.settings
    usual_s = config.log_roll_age_s if topic.partitions is None else config.partition_roll_age_s
    return RollBounds(
        size_bytes=min(own.roll_bytes or config.log_roll_bytes, config.log_roll_bytes),
        age_s=usual_s if own.roll_age_s is None else own.roll_age_s,
    )
