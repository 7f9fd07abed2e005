"""What comes behind a frame that was refused."""

from seaweedmq.core.kafka.refused_sequences import RefusedSequences
from seaweedmq.model.producer import KAFKA_SEQUENCES

ME, OTHER = (1, "orders", 0, 5000), (1, "orders", 1, 5000)


def test_what_comes_behind_a_refused_frame_is_no_beginning_until_it_comes_again() -> None:
    refused = RefusedSequences()
    assert not refused.is_behind(ME, 0, 0)
    refused.refuse(ME, 0, 0)
    assert refused.is_behind(ME, 0, 10)
    assert refused.is_behind(ME, 0, 20)
    assert not refused.is_behind(OTHER, 0, 10)
    assert not refused.is_behind(ME, 0, 0)
    assert not refused.is_behind(ME, 0, 10)
    assert len(refused) == 0


def test_a_frame_before_the_refused_one_is_not_behind_it() -> None:
    """It was sent to another broker, or by another connection, and failed there."""
    refused = RefusedSequences()
    refused.refuse(ME, 0, 604)
    assert not refused.is_behind(ME, 0, 602)
    assert not refused.is_behind(ME, 0, 604)


def test_sequences_begin_again_at_0_behind_the_last_one() -> None:
    refused = RefusedSequences()
    refused.refuse(ME, 0, KAFKA_SEQUENCES - 1)
    assert refused.is_behind(ME, 0, 0)
    refused.refuse(OTHER, 0, 0)
    assert not refused.is_behind(OTHER, 0, KAFKA_SEQUENCES - 1)


def test_a_new_epoch_begins_anew() -> None:
    refused = RefusedSequences()
    refused.refuse(ME, 0, 30)
    assert not refused.is_behind(ME, 1, 0)
    assert not refused.is_behind(ME, 1, 10)


def test_what_was_stored_elsewhere_is_forgotten() -> None:
    refused = RefusedSequences()
    refused.refuse(ME, 0, 30)
    refused.forget(ME)
    refused.forget(ME)
    assert not refused.is_behind(ME, 0, 40)


def test_few_are_remembered() -> None:
    refused = RefusedSequences(refused_max=2)
    for number in range(5):
        refused.refuse(number, 0, 0)
    assert len(refused) == 2
    assert not refused.is_behind(0, 0, 10)
    assert refused.is_behind(4, 0, 10)
