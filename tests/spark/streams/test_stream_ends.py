"""Ends up to which a stream may read while brokers answer, fail, or come back."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest

from seaweedmq.errors import Corrupt, Unavailable
from seaweedmq.model.topic import TopicName
from seaweedmq.spark.streams import stream_ends
from seaweedmq.spark.streams.stream_ends import ANSWER_S, AWAY_S, BrokerEnds

NAME = TopicName("shop", "orders")


class Asked(BrokerEnds):
    """A client whose answers a test determines."""

    def __init__(self, *answers: Mapping[int, int] | None) -> None:
        super().__init__("127.0.0.1:1", NAME, lambda: self.now)
        self.now = 0.0
        self.answers = list(answers)
        self.questions = 0

    def high_watermarks(self) -> Mapping[int, int]:
        self.questions += 1
        answer = self.answers.pop(0)
        if answer is None:
            self.now += ANSWER_S
            raise Unavailable("no broker answers")
        return answer


def test_brokers_that_are_away_are_asked_now_and_then_and_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    ends = Asked({0: 5}, None, None, {0: 9}, {0: 9})
    assert ends.high_watermarks_if_any() == {0: 5}
    for _ in range(50):
        assert ends.high_watermarks_if_any() == {}
    assert (ends.questions, ends.now) == (2, ANSWER_S), "the query continues with files meanwhile"
    ends.now += AWAY_S
    assert ends.high_watermarks_if_any() == {}
    ends.now += AWAY_S
    assert ends.high_watermarks_if_any() == ends.high_watermarks_if_any() == {0: 9}
    assert caplog.text.count("is read up to the end of its tables") == 1


def test_who_must_know_all_waits_for_brokers_and_for_segments_on_their_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_ends, "PAUSE_S", 0.0)
    ends = Asked(None, {0: 5}, {0: 5, 1: 7})
    assert ends.all_high_watermarks(lambda: [0, 1]) == {0: 5, 1: 7}


def test_who_must_know_all_does_not_wait_for_damaged_files() -> None:
    ends = Asked({0: 5})
    admin = SimpleNamespace(describe_topic=lambda _: SimpleNamespace(segments=[SimpleNamespace(problem="x.log")]))
    ends._client = cast(Any, SimpleNamespace(admin=admin))  # noqa: SLF001
    with pytest.raises(Corrupt, match=r"x\.log"):
        ends.all_high_watermarks(lambda: [0, 1])


def test_who_must_know_all_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_ends, "PATIENCE_S", 0.0)
    with pytest.raises(Unavailable, match="end offsets of some segments of shop/orders are unknown"):
        Asked({0: 5}).all_high_watermarks(lambda: [0, 1])
