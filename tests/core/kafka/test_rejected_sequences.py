"""Frames that follow a rejected frame."""

from seaweedmq.core.kafka.rejected_sequences import RejectedSequences
from seaweedmq.model.producer import KAFKA_SEQUENCES

NOW = 1_000.0
ME, OTHER = (1, "orders", 0, 5000), (1, "orders", 1, 5000)


def test_what_comes_behind_a_refused_frame_is_no_beginning_until_it_comes_again_or_a_new_epoch() -> None:
    refused = RejectedSequences()
    assert not refused.is_behind(ME, 0, 0, NOW)
    refused.reject(ME, 0, 0, NOW)
    assert refused.is_behind(ME, 0, 10, NOW)
    assert refused.is_behind(ME, 0, 20, NOW)
    assert not refused.is_behind(OTHER, 0, 10, NOW)
    assert not refused.is_behind(ME, 0, 0, NOW)
    assert not refused.is_behind(ME, 0, 10, NOW)
    assert len(refused) == 0
    refused = RejectedSequences()
    refused.reject(ME, 0, 30, NOW)
    assert not refused.is_behind(ME, 1, 0, NOW)
    assert not refused.is_behind(ME, 1, 10, NOW)
    refused = RejectedSequences()
    refused.reject(ME, 0, 30, NOW)
    refused.forget(ME)
    refused.forget(ME)
    assert not refused.is_behind(ME, 0, 40, NOW)


def test_a_frame_before_the_refused_one_is_not_behind_it() -> None:
    """It was sent to another broker, or by another connection, and failed there."""
    for rejected, sequence, is_behind in (
        (604, 602, False),
        (604, 604, False),
        (KAFKA_SEQUENCES - 1, 0, True),  # sequences begin again at 0 behind the last one
        (0, KAFKA_SEQUENCES - 1, False),
    ):
        refused = RejectedSequences()
        refused.reject(ME, 0, rejected, NOW)
        assert refused.is_behind(ME, 0, sequence, NOW) == is_behind, (rejected, sequence)


def test_a_frame_that_does_not_come_again_is_forgotten_and_few_are_remembered() -> None:
    """aiokafka does not resend all that it could, so a rejection of the following frames would never end."""
    refused = RejectedSequences()
    refused.reject(ME, 0, 0, NOW)
    assert refused.is_behind(ME, 0, 10, NOW + 59)
    assert not refused.is_behind(ME, 0, 10, NOW + 60)
    assert len(refused) == 0
    refused = RejectedSequences(refused_max=2)
    for number in range(5):
        refused.reject(number, 0, 0, NOW)
    assert len(refused) == 2
    assert not refused.is_behind(0, 0, 10, NOW)
    assert refused.is_behind(4, 0, 10, NOW)
