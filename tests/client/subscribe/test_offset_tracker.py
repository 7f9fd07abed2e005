"""The position of a reader in its segment, and the credit that it grants the broker, as transcripts."""

from dataclasses import replace

import pytest

from seaweedmq.client.subscribe.offset_tracker import OffsetTracker
from seaweedmq.client.subscribe.receive_credit import ReceiveCredit
from seaweedmq.errors import OutOfRange, ProtocolViolation
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind, SubscribeEnd
from seaweedmq.model.ring import RING_SLOTS_MAX, KeyRange
from seaweedmq.model.segment import Segment, SegmentState
from tests.support.segments import make_segment, make_topic

HALF = RING_SLOTS_MAX // 2
KIB = 1 << 10


def segment(number: int = 0, lo: int = 0, hi: int = RING_SLOTS_MAX, start_offset: int = 0) -> Segment:
    return replace(make_segment(start_offset=start_offset), id=number, slots=KeyRange(lo, hi))


def offset(value: int) -> Start:
    return Start(StartKind.OFFSET, value)


def receive(cursor: OffsetTracker, base: int, end: int) -> list[int]:
    """Receive a frame, and return the first and last offset delivered from it."""
    wanted = cursor.wanted(base, end)
    cursor.passed(end)
    return [wanted[0], wanted[-1]] if wanted else []


def describe(*segments: Segment, retention_s: int | None = None) -> TopicDescription:
    return TopicDescription(topic=replace(make_topic(), retention_s=retention_s), segments=segments, addresses={})


def test_records_below_the_start_are_dropped_and_the_rest_is_read_once_to_the_end() -> None:
    cursor = OffsetTracker(segment(), offset(5), None)
    assert cursor.start == offset(5)
    cursor.ready(5)
    assert [receive(cursor, 0, 10), receive(cursor, 10, 12)] == [[5, 9], [10, 11]]
    assert (cursor.begin_offset, cursor.start, cursor.ended) == (5, offset(12), False)
    cursor.end(SubscribeEnd(end_offset=12, successors=(1, 2)))
    assert (cursor.ended, cursor.end_offset, cursor.successors) == (True, 12, (1, 2))
    cursor = OffsetTracker(segment(), EARLIEST, None)
    cursor.ready(0)
    assert receive(cursor, 0, 10) == [0, 9]
    assert cursor.start == offset(10)
    cursor.ready(10)
    assert receive(cursor, 5, 15) == [10, 14]
    assert receive(cursor, 5, 15) == []
    cursor = OffsetTracker(segment(), EARLIEST, None)
    cursor.ready(0)
    cursor.wanted(0, 10)
    assert cursor.start == offset(0)


def test_reading_stops_within_a_frame_or_where_it_begins() -> None:
    cursor = OffsetTracker(segment(), EARLIEST, 7)
    cursor.ready(0)
    assert receive(cursor, 0, 5) == [0, 4]
    assert not cursor.ended
    assert receive(cursor, 5, 10) == [5, 6]
    assert (cursor.ended, cursor.end_offset) == (True, 7)
    cursor = OffsetTracker(segment(), EARLIEST, 7)
    cursor.ready(7)
    assert (cursor.ended, cursor.end_offset) == (True, 7)


def test_a_start_beyond_the_end_is_waited_for() -> None:
    cursor = OffsetTracker(segment(), offset(8), None)
    assert cursor.may_be_beyond
    assert not cursor.begin_beyond(9), "retention removed it"
    assert cursor.begin_beyond(5)
    assert (cursor.start, cursor.may_be_beyond) == (offset(5), False)
    cursor.ready(5)
    assert [receive(cursor, 5, 7), receive(cursor, 7, 12)] == [[], [8, 11]]
    assert cursor.begin_offset is None, "what it begins with was no offset that the broker said"
    assert not OffsetTracker(segment(), LATEST, None).may_be_beyond


def test_what_a_broker_must_not_do_and_records_removed_before_they_were_read_are_errors() -> None:
    cursor = OffsetTracker(segment(), EARLIEST, None)
    with pytest.raises(ProtocolViolation, match="frames before their first offset"):
        cursor.wanted(0, 5)
    cursor.ready(0)
    receive(cursor, 0, 5)
    with pytest.raises(ProtocolViolation, match="offset 5 is next, a frame begins at 6"):
        cursor.wanted(6, 7)
    with pytest.raises(ProtocolViolation, match="ended at offset 9, but delivery only reached 5"):
        cursor.end(SubscribeEnd(end_offset=9, successors=()))
    assert not cursor.ended
    cursor = OffsetTracker(segment(), EARLIEST, None)
    cursor.ready(3)
    assert cursor.begin_offset == 3, "no reader asked for the offsets removed before"
    receive(cursor, 3, 5)
    with pytest.raises(OutOfRange, match="removed offsets 5 to 7"):
        cursor.ready(8)


def test_a_pruned_segment_is_followed_if_it_was_empty_or_read_and_else_an_error() -> None:
    cursor = OffsetTracker(segment(0, 0, HALF, start_offset=4), EARLIEST, None)
    cursor.ready(4)
    cursor.pruned(describe(segment(5, 0, HALF), segment(6, HALF)))
    assert (cursor.ended, cursor.end_offset, cursor.successors) == (True, 4, (5,))
    sealed = replace(segment(), state=SegmentState.SEALED, end_offset=9, successors=(1,))
    cursor = OffsetTracker(sealed, EARLIEST, None)
    cursor.ready(0)
    receive(cursor, 0, 9)
    cursor.pruned(describe(retention_s=60))
    assert (cursor.ended, cursor.end_offset, cursor.successors) == (True, 9, (1,))
    for retention_s in (60, None):  # it may be switched off since
        cursor = OffsetTracker(segment(), EARLIEST, None)
        cursor.ready(0)
        receive(cursor, 0, 9)
        with pytest.raises(OutOfRange, match=r"is pruned, since retention removed its records or .*: continue with"):
            cursor.pruned(describe(retention_s=retention_s))
        assert not cursor.ended


def test_credit_and_what_is_held_stay_within_the_share_except_for_a_message_alone() -> None:
    credit = ReceiveCredit(64 * KIB)
    share = 1_000 * KIB
    assert credit.open(share) == share
    credit.received(600 * KIB)
    credit.hold(600 * KIB)
    assert credit.more(share) == 0, "nothing was taken"
    credit.taken(200 * KIB)
    assert credit.more(share) == 0, "too little for a message"
    credit.taken(400 * KIB)
    assert credit.more(share) == 600 * KIB
    assert credit.more(share) == 0
    credit = ReceiveCredit(64 * KIB)
    share = 100 * KIB
    credit.open(share)
    credit.received(900 * KIB)
    credit.hold(900 * KIB)
    assert credit.more(share) == 800 * KIB, "what went beyond the credit is paid, no more"
    credit.taken(900 * KIB)
    assert credit.more(share) == 900 * KIB
    credit = ReceiveCredit(64 * KIB)
    share = 1_000 * KIB
    credit.open(share)
    credit.received(500 * KIB)
    credit.hold(500 * KIB)
    assert credit.open(share) == 500 * KIB
    credit.received(500 * KIB)
    credit.hold(500 * KIB)
    assert credit.open(share) == 64 * KIB, "a stream never opens without credit"
