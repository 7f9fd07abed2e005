"""The window of one publish stream, as transcripts."""

from dataclasses import dataclass, replace

import pytest

from seaweedmq.client.publish.window import OutFrame, Window
from seaweedmq.codec.frame import FrameHeader, decode_header, encode_header
from seaweedmq.errors import Corrupt, ProtocolViolation
from seaweedmq.model.publish import FrameAck, PublishReady, PublishSealed


@dataclass(eq=False)
class Quiet:
    """An outcome nobody looks at."""

    deadline: float = 100.0

    def acked(self, rows: object, segment: int, base_offset: int | None) -> None: ...

    def failed(self, rows: object, error: Exception) -> None: ...


def frame_bytes(first_sequence: int, count: int, size: int = 200) -> bytes:
    header = FrameHeader(
        encoding=1,
        flags=0,
        record_count=count,
        payload_length=size - 144,
        payload_checksum=0,
        timestamp_min=0,
        timestamp_max=0,
        producer_id=7,
        first_sequence=first_sequence,
        producer_epoch=0,
        slot_min=0,
        slot_max=0,
        histogram=(0,) * 16,
    )
    return encode_header(header) + bytes(size - 144)


def add(window: Window, count: int, deadline: float = 100.0) -> bytes:
    data = frame_bytes(window.next_sequence, count)
    window.add(data, range(count), Quiet(deadline))
    return data


def ready(next_sequence: int = 0, frames: int = 16, size: int = 1 << 20) -> PublishReady:
    return PublishReady(
        next_sequence=next_sequence, frame_bytes_max=1 << 20, in_flight_frames_max=frames, in_flight_bytes_max=size
    )


def sequences(frames: list[bytes] | list[OutFrame]) -> list[int]:
    return [decode_header(f.data if isinstance(f, OutFrame) else f).first_sequence for f in frames]


def test_frames_go_out_in_order_within_the_brokers_limits_and_leave_when_acknowledged() -> None:
    window = Window()
    first, second, third = add(window, 10), add(window, 5), add(window, 1)
    assert window.take(1 << 20) == []  # no stream yet
    window.opened(ready(frames=2))
    assert window.take(1 << 20) == [first, second]
    assert window.take(1 << 20) == []
    assert window.acked(FrameAck(0, 10, 100)).first_sequence == 0
    assert window.take(1 << 20) == [third]
    assert (len(window), window.out, window.waiting_bytes) == (2, 2, 0)


def test_a_frame_larger_than_the_byte_limit_goes_out_alone() -> None:
    window = Window()
    add(window, 1)
    add(window, 1)
    window.opened(ready(size=10))
    assert len(window.take(1 << 20)) == 1
    assert window.take(1 << 20) == []


def test_small_frames_share_a_message_up_to_its_size() -> None:
    window = Window()
    for _ in range(5):
        add(window, 1)
    window.opened(ready())
    assert [len(window.take(450)) for _ in range(3)] == [2, 2, 1]


def test_after_a_lost_stream_the_same_bytes_go_out_again() -> None:
    window = Window()
    data = [add(window, 3), add(window, 3)]
    window.opened(ready())
    assert window.take(1 << 20) == data
    window.lost()
    window.opened(ready(next_sequence=6))  # both are stored, only the acknowledgements were lost
    assert window.take(1 << 20) == data


@pytest.mark.parametrize("ack", [FrameAck(3, 3, 0), FrameAck(0, 2, 0)])
def test_an_acknowledgement_for_another_frame_breaks_the_protocol(ack: FrameAck) -> None:
    window = Window()
    add(window, 3)
    add(window, 3)
    window.opened(ready())
    window.take(1 << 20)
    with pytest.raises(ProtocolViolation, match="0 \\+ 3 is next"):
        window.acked(ack)


def test_a_broker_that_knows_sequences_never_sent_is_refused() -> None:
    window = Window()
    add(window, 3)
    with pytest.raises(Corrupt, match="another producer uses the same id"):
        window.opened(ready(next_sequence=4))


def test_a_broker_that_forgot_the_producer_begins_where_the_window_says_that_it_repeats_nothing_below() -> None:
    window = Window()
    assert window.first_sequence == 0
    data = [add(window, 3), add(window, 2), add(window, 4)]
    window.opened(ready())
    window.take(1 << 20)
    window.acked(FrameAck(0, 3, 0))
    window.opened(ready(next_sequence=window.first_sequence))
    assert (window.first_sequence, window.take(1 << 20)) == (3, data[1:]), "same bytes"
    window.acked(FrameAck(3, 2, 10))
    window.acked(FrameAck(5, 4, 12))
    assert window.first_sequence == 9


def test_records_that_were_acknowledged_and_are_lost_are_reported() -> None:
    window = Window()
    add(window, 3)
    window.opened(ready())
    window.take(1 << 20)
    window.acked(FrameAck(0, 3, 0))
    with pytest.raises(Corrupt, match=r"sequences up to 2, but had acknowledged those up to 3: .* were lost"):
        window.opened(ready(next_sequence=2))
    sealed = PublishSealed(end_offset=9, next_sequence=2, recent=(), successors=(1,))
    assert isinstance(window.loss(sealed), Corrupt)
    assert window.loss(replace(sealed, next_sequence=3)) is None


def test_only_what_was_out_on_a_stream_may_be_stored() -> None:
    window = Window()
    add(window, 3, deadline=10.0)
    assert not window.may_be_stored
    window.opened(ready())
    assert not window.may_be_stored
    window.take(1 << 20)
    add(window, 2)
    assert window.may_be_stored
    window.lost()
    assert window.may_be_stored
    window.expire(10.0)
    assert not window.may_be_stored, "the second one never was"
    window.opened(ready(next_sequence=0))
    assert not window.may_be_stored, "the broker says so"
    window.take(1 << 20)
    assert window.may_be_stored


def test_sealing_tells_committed_frames_from_those_to_be_routed_again() -> None:
    window = Window()
    for count in (3, 4, 5):
        add(window, count)
    window.opened(ready())
    window.take(1 << 20)
    committed, rest = window.sealed(
        PublishSealed(end_offset=50, next_sequence=7, recent=(FrameAck(3, 4, 46),), successors=(1,))
    )
    assert [(f.first_sequence, base) for f, base in committed] == [(0, None), (3, 46)]
    assert sequences(rest) == [7]
    assert len(window) == 0


def test_overdue_frames_leave_and_the_rest_is_numbered_anew_unless_they_were_stored_after_all() -> None:
    for stored, expected in ((0, [0, 4]), (3, [3, 7])):
        window = Window()
        add(window, 3, deadline=10.0)
        add(window, 4)
        add(window, 5)
        window.opened(ready())
        window.take(1 << 20)
        overdue, was_open = window.expire(10.0)
        assert (sequences(overdue), was_open) == ([0], True)
        window.opened(ready(next_sequence=stored))
        assert sequences(window.take(1 << 20)) == expected


def test_a_frame_that_was_overdue_before_it_was_sent_leaves_no_gap_on_an_open_stream() -> None:
    window = Window()
    window.opened(ready())
    add(window, 3, deadline=10.0)
    overdue, was_open = window.expire(10.0)
    assert (sequences(overdue), was_open) == ([0], True)
    add(window, 4)
    assert window.take(1 << 20) == [], "the broker expects 0 next, and only a new stream says so"
    window.opened(ready())
    assert sequences(window.take(1 << 20)) == [0]


def test_a_refused_frame_is_found_by_sending_one_at_a_time() -> None:
    window = Window()
    for _ in range(3):
        add(window, 1)
    window.opened(ready())
    window.take(1 << 20)
    assert window.suspect() is None  # three were out: whose fault it is, is not known
    window.opened(ready())
    assert sequences(window.take(1 << 20)) == [0]
    window.acked(FrameAck(0, 1, 0))
    assert sequences(window.take(1 << 20)) == [1]
    culprit = window.suspect()
    assert culprit is not None
    assert culprit.first_sequence == 1
    window.opened(ready(next_sequence=1))
    assert sequences(window.take(1 << 20)) == [1]  # the third, numbered anew


def test_the_first_frame_that_is_too_long_is_found_behind_what_is_stored() -> None:
    window = Window()
    for size in (300, 200, 300, 200):
        window.add(frame_bytes(window.next_sequence, 2, size), range(2), Quiet())
    assert window.first_longer(299, 0) == 0
    assert window.first_longer(299, 2) == 4
    assert window.first_longer(299, 6) is None
    assert window.first_longer(300, 0) is None
    assert sequences(window.take_from(4)) == [4, 6]
    assert window.next_sequence == 4
