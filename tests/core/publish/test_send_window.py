"""The send window of one publish stream, as transcripts."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pytest

from seaweedmq.client.publish.batches.framing import renumbered
from seaweedmq.codec.frame import FrameHeader, decode_header, encode_header
from seaweedmq.core.publish.outgoing_frame import (
    FrameAcked,
    FrameFailed,
    FrameOutcome,
    FrameRerouted,
    OutgoingFrame,
    Positions,
)
from seaweedmq.core.publish.send_window import SendWindow
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound, ProtocolViolation, SeaweedMQError, Unavailable
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.messages.publish import FrameAck, PublishReady, PublishSealed
from seaweedmq.model.segment import SegmentState
from tests.support.segments import make_segment

SEGMENT = replace(make_segment(), id=5)
MESSAGE = 1 << 20


@dataclass(eq=False)
class Quiet:
    """A promise whose outcome the test ignores."""

    deadline_s: float = 100.0

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None: ...

    def failed(self, positions: Positions, error: SeaweedMQError) -> None: ...


def frame_bytes(first_sequence: int, count: int, size: int = 200) -> bytes:
    header = FrameHeader(1, 0, count, size - 144, 0, 0, 0, 7, first_sequence, 0, 0, 0, (0,) * 16)
    return encode_header(header) + bytes(size - 144)


def add(window: SendWindow, count: int, deadline_s: float = 100.0, size: int = 200) -> bytes:
    """Queue a frame whose positions are its sequences."""
    first = window.next_sequence
    data = frame_bytes(first, count, size)
    window.add(OutgoingFrame(data, first, range(first, first + count), Quiet(deadline_s)))
    return data


def ready(next_sequence: int = 0, frames: int = 16, size: int = 1 << 20) -> PublishReady:
    return PublishReady(
        next_sequence=next_sequence, frame_bytes_max=1 << 20, in_flight_frames_max=frames, in_flight_bytes_max=size
    )


def sent(*counts: int) -> SendWindow:
    """Return a window that has sent frames of so many records."""
    window = SendWindow(SEGMENT, renumbered)
    for count in counts:
        add(window, count)
    window.opened(ready())
    window.take(MESSAGE)
    return window


def sequences(frames: list[Frames]) -> list[int]:
    return [decode_header(data).first_sequence for data in frames]


def told(left: Iterable[FrameOutcome]) -> list[str]:
    """Return a line for each frame that left a window, in order."""
    lines = []
    for each in left:
        match each:
            case FrameAcked(positions, _, segment, base_offset):
                assert segment == SEGMENT.id
                lines.append(f"acked {positions[0]}..{positions[-1]} at {base_offset}")
            case FrameFailed(positions, _, error):
                lines.append(f"failed {positions[0]}..{positions[-1]}: {type(error).__name__}")
            case FrameRerouted(frame):
                lines.append(f"again {frame.first_sequence}..{frame.end_sequence - 1}")
    return lines


def test_frames_go_out_in_order_in_messages_within_the_brokers_limits_and_leave_when_acknowledged() -> None:
    window = SendWindow(SEGMENT, renumbered)
    first, second, third = add(window, 10), add(window, 5), add(window, 1)
    assert window.take(MESSAGE) == []  # no stream yet
    window.opened(ready(frames=2))
    assert window.take(MESSAGE) == [first, second]
    assert window.take(MESSAGE) == []
    assert told([window.acked(FrameAck(0, 10, 100))]) == ["acked 0..9 at 100"]
    assert window.take(MESSAGE) == [third]
    assert (len(window), window.in_flight, window.waiting_bytes) == (2, 2, 0)
    window = SendWindow(SEGMENT, renumbered)
    for _ in range(5):
        add(window, 1)
    window.opened(ready())
    assert [len(window.take(450)) for _ in range(3)] == [2, 2, 1]
    window.opened(ready(size=10))
    assert [len(window.take(MESSAGE)) for _ in range(2)] == [1, 0]


def test_after_a_lost_stream_the_same_bytes_go_out_again() -> None:
    window = SendWindow(SEGMENT, renumbered)
    data = [add(window, 3), add(window, 3)]
    window.opened(ready())
    assert window.take(MESSAGE) == data
    window.lost()
    window.opened(ready(next_sequence=6))  # both are stored, their acknowledgements were lost
    assert window.take(MESSAGE) == data


def test_an_acknowledgement_for_another_frame_or_of_sequences_never_sent_breaks_the_protocol() -> None:
    for ack in (FrameAck(3, 3, 0), FrameAck(0, 2, 0)):
        with pytest.raises(ProtocolViolation, match="0 \\+ 3 is next"):
            sent(3, 3).acked(ack)
    window = SendWindow(SEGMENT, renumbered)
    add(window, 3)
    with pytest.raises(ProtocolViolation, match="another producer uses the same id"):
        window.opened(ready(next_sequence=4))


def test_a_broker_that_forgot_the_producer_begins_where_the_window_says_that_it_repeats_nothing_below() -> None:
    window = SendWindow(SEGMENT, renumbered)
    assert window.first_sequence == 0
    data = [add(window, 3), add(window, 2), add(window, 4)]
    window.opened(ready())
    window.take(MESSAGE)
    window.acked(FrameAck(0, 3, 0))
    window.opened(ready(next_sequence=window.first_sequence))
    assert (window.first_sequence, window.take(MESSAGE)) == (3, data[1:]), "same bytes"
    window.acked(FrameAck(3, 2, 10))
    window.acked(FrameAck(5, 4, 12))
    assert window.first_sequence == 9


def test_records_that_were_acknowledged_and_are_lost_are_reported() -> None:
    window = sent(3)
    window.acked(FrameAck(0, 3, 0))
    with pytest.raises(Corrupt, match=r"sequences up to 2, but had acknowledged those up to 3: .* were lost"):
        window.opened(ready(next_sequence=2))
    for next_sequence, left in ((2, "failed 3..4: Corrupt"), (3, "again 3..4")):
        window = sent(3)
        window.acked(FrameAck(0, 3, 0))
        add(window, 2)
        sealed = PublishSealed(end_offset=9, next_sequence=next_sequence, recent=(), successors=(1,))
        assert told(window.sealed(sealed)) == [left]


def test_who_has_had_nothing_out_need_not_ask_what_a_sealed_segment_kept() -> None:
    sealed = replace(SEGMENT, state=SegmentState.SEALED, end_offset=50, successors=(6,))
    window = SendWindow(SEGMENT, renumbered)

    def may_be_stored() -> bool:
        answer = window.sealed_unasked(sealed)
        assert answer is None or (answer.next_sequence, answer.successors) == (window.first_sequence, (6,))
        return answer is None

    add(window, 3, deadline_s=10.0)
    assert window.sealed_unasked(SEGMENT) is None, "it is open"
    assert not may_be_stored()
    window.opened(ready())
    assert not may_be_stored()
    window.take(MESSAGE)
    add(window, 2)
    assert may_be_stored()
    window.lost()
    assert may_be_stored()
    window.expire(10.0)
    assert not may_be_stored(), "the second one never was"
    window.opened(ready(next_sequence=0))
    assert not may_be_stored(), "the broker expects 0 next"
    window.take(MESSAGE)
    assert may_be_stored()


def test_of_a_sealed_or_pruned_segment_frames_are_committed_fail_or_are_routed_again() -> None:
    window = sent(3, 4, 5)
    left = window.sealed(PublishSealed(end_offset=50, next_sequence=7, recent=(FrameAck(3, 4, 46),), successors=(1,)))
    assert told(left) == ["acked 0..2 at None", "acked 3..6 at 46", "again 7..11"]
    assert len(window) == 0
    window = SendWindow(SEGMENT, renumbered)
    window.opened(ready(frames=2))
    for count in (3, 4, 5):
        add(window, count)
    window.take(MESSAGE)
    window.lost()
    assert told(window.pruned()) == ["failed 0..2: OutOfRange", "failed 3..6: OutOfRange", "again 7..11"]
    assert len(window) == 0


def test_when_no_stream_can_be_opened_everything_fails_and_the_last_error_is_told() -> None:
    window = sent(3)
    add(window, 2)
    assert told(window.give_up(NotFound("the topic is gone"))) == ["failed 0..2: NotFound", "failed 3..4: NotFound"]
    assert (len(window), window.queued_bytes, window.next_sequence) == (0, 0, 5)
    add(window, 1)
    assert len(window) == 1
    window = SendWindow(SEGMENT, renumbered)
    add(window, 1, deadline_s=10.0)
    window.lost(Unavailable("broker b-0 is away"))
    window.lost()
    (overdue,), _ = window.expire(10.0)
    assert str(overdue.error) == (
        "shop/orders#5 did not acknowledge within delivery_timeout_s: the record may be stored nevertheless; "
        "last: broker b-0 is away"
    )


def test_overdue_frames_leave_no_gap_and_the_rest_is_numbered_anew_unless_they_were_stored_after_all() -> None:
    for stored, expected in ((0, [0, 4]), (3, [3, 7])):
        window = SendWindow(SEGMENT, renumbered)
        add(window, 3, deadline_s=10.0)
        add(window, 4)
        add(window, 5)
        window.opened(ready())
        window.take(MESSAGE)
        overdue, was_open = window.expire(10.0)
        assert (told(overdue), was_open) == (["failed 0..2: DeadlineExceeded"], True)
        window.opened(ready(next_sequence=stored))
        assert sequences(window.take(MESSAGE)) == expected
    window = SendWindow(SEGMENT, renumbered)
    window.opened(ready())
    add(window, 3, deadline_s=10.0)
    overdue, was_open = window.expire(10.0)
    assert (told(overdue), was_open) == (["failed 0..2: DeadlineExceeded"], True)
    add(window, 4)
    assert window.take(MESSAGE) == [], "the broker expects 0 next, which only a new stream accepts"
    window.opened(ready())
    assert sequences(window.take(MESSAGE)) == [0]


def test_a_refused_frame_is_found_by_sending_one_at_a_time() -> None:
    window = sent(1, 1, 1)
    refusal = InvalidArgument("one of them is poison")
    assert window.rejected(refusal) == []  # three were in flight: the bad one is not known
    window.opened(ready())
    assert sequences(window.take(MESSAGE)) == [0]
    window.acked(FrameAck(0, 1, 0))
    assert sequences(window.take(MESSAGE)) == [1]
    assert told(window.rejected(refusal)) == ["failed 1..1: InvalidArgument"]
    window.opened(ready(next_sequence=1))
    assert sequences(window.take(MESSAGE)) == [1]  # the third, renumbered


@pytest.mark.parametrize(
    ("frame_bytes_max", "next_sequence", "again"),
    [
        (299, 0, ["again 0..1", "again 2..3", "again 4..5", "again 6..7"]),
        (299, 2, ["again 4..5", "again 6..7"]),
        (299, 6, []),
        (300, 0, []),
    ],
)
def test_from_the_first_frame_on_that_is_too_long_and_not_stored_all_are_cut_anew(
    frame_bytes_max: int, next_sequence: int, again: list[str]
) -> None:
    window = SendWindow(SEGMENT, renumbered)
    for size in (300, 200, 300, 200):
        add(window, 2, size=size)
    left = window.opened(replace(ready(next_sequence), frame_bytes_max=frame_bytes_max))
    assert told(left) == again
    assert window.next_sequence == 8 - 2 * len(again)
