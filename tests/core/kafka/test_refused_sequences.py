"""What comes behind a frame that was refused, on one connection."""

import pytest

from seaweedmq.core.kafka.refused_sequences import IN_FLIGHT_MAX, RefusedSequences
from seaweedmq.errors import Unavailable

ME, OTHER = "orders 0 5000", "orders 1 5000"


def test_what_comes_behind_a_refused_frame_waits_until_it_comes_again() -> None:
    refused = RefusedSequences()
    refused.enter(ME, 0, 0)
    refused.refuse(ME, 0, 0)
    for later in (10, 20):
        with pytest.raises(Unavailable, match="sequence 0 was refused before"):
            refused.enter(ME, 0, later)
    refused.enter(OTHER, 0, 10)
    refused.enter(ME, 0, 0)
    refused.enter(ME, 0, 10)
    assert len(refused) == 0


def test_it_is_forgotten_when_nothing_can_be_under_way_behind_it_any_more() -> None:
    refused = RefusedSequences()
    refused.next_request()
    refused.refuse(ME, 0, 13)
    for _ in range(IN_FLIGHT_MAX - 1):
        refused.next_request()
        with pytest.raises(Unavailable):
            refused.enter(ME, 0, 23)
    refused.next_request()
    refused.enter(ME, 0, 23)  # 13 to 22 were taken elsewhere meanwhile
    assert len(refused) == 0


def test_a_new_epoch_begins_anew() -> None:
    refused = RefusedSequences()
    refused.refuse(ME, 0, 30)
    refused.enter(ME, 1, 0)
    refused.enter(ME, 1, 10)


def test_few_are_remembered() -> None:
    refused = RefusedSequences(refused_max=2)
    for number in range(5):
        refused.refuse(number, 0, 0)
    assert len(refused) == 2
    refused.enter(0, 0, 10)
    with pytest.raises(Unavailable):
        refused.enter(4, 0, 10)
