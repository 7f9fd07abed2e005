"""Frames in flight on one publish stream, within the limits of its broker."""

import pytest

from seaweedmq.core.publish.in_flight import InFlight, SentFrame
from seaweedmq.errors import ProtocolViolation
from seaweedmq.model.messages.publish import FrameAck, PublishReady


def opened(frames: int = 3, size: int = 100) -> InFlight:
    in_flight = InFlight()
    in_flight.opened(
        PublishReady(next_sequence=0, frame_bytes_max=1_000, in_flight_frames_max=frames, in_flight_bytes_max=size)
    )
    return in_flight


def test_a_message_alone_always_has_room_and_acknowledgements_in_order_make_room() -> None:
    in_flight = opened()
    assert in_flight.has_room(5, 500)
    in_flight.add(SentFrame(0, 10, 60))
    assert in_flight.has_room(2, 40)
    assert not in_flight.has_room(3, 40)
    assert not in_flight.has_room(1, 41)
    in_flight = opened()
    in_flight.add(SentFrame(0, 10, 60))
    in_flight.add(SentFrame(10, 5, 40))
    in_flight.acked(FrameAck(0, 10, 700))
    assert (len(in_flight), in_flight.size_bytes) == (1, 40)
    with pytest.raises(ProtocolViolation, match="sequences 0 \\+ 10, but 10 \\+ 5 is next"):
        in_flight.acked(FrameAck(0, 10, 700))
    in_flight.clear()
    with pytest.raises(ProtocolViolation, match="none is in flight"):
        in_flight.acked(FrameAck(10, 5, 710))
