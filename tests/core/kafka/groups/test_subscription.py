"""Topics in a consumer's subscription, as far as it is readable."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.core.kafka.groups.subscription import subscribed_topics
from tests.core.kafka.group_transcript import subscription


@pytest.mark.parametrize("topics", [(), ("orders",), ("orders", "zahlungen-ü")])
def test_the_topics_of_every_version_stand_first(topics: tuple[str, ...]) -> None:
    said = subscription(*topics)
    assert subscribed_topics(said) == frozenset(topics)
    assert subscribed_topics(b"\0\7" + said[2:] + b"fields of later versions") == frozenset(topics)


@pytest.mark.parametrize(
    "said", [b"", b"\0\1", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\5abc", b"\0\1\0\0\0\1\0\1\xff"]
)
def test_what_is_no_subscription_is_not_guessed(said: bytes) -> None:
    assert subscribed_topics(said) is None


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_not(said: bytes) -> None:
    topics = subscribed_topics(said)
    assert topics is None or all(isinstance(topic, str) for topic in topics)
