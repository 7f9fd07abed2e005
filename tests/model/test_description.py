"""The limits that brokers report with a topic."""

from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.description import TopicDescription
from tests.support.segments import make_topic


def described(frame_bytes_max: int) -> TopicDescription:
    return TopicDescription(topic=make_topic(), segments=(), addresses={}, frame_bytes_max=frame_bytes_max)


def test_a_broker_that_reports_no_limit_of_frames_is_taken_to_have_the_default() -> None:
    assert described(0).known_frame_bytes_max == BrokerConfig().frame_bytes_max
    assert described(1_000).known_frame_bytes_max == 1_000
