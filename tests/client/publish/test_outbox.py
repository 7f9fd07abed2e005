"""The frames of one publisher, from routing to their outcome, as transcripts."""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pytest

from seaweedmq.client.publish.batches.framing import FRAME_BYTES_MAX
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.outbox import AHEAD_BYTES, Action, Deliver, Outbox, Reopen, SendLimits
from seaweedmq.codec.frame import FLAG_KEY, decode_header, split_frames
from seaweedmq.codec.payload.batch import decode_frame
from seaweedmq.core.publish.outgoing_frame import FrameAcked, FrameFailed, Positions
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.messages.publish import FrameAck, PublishReady, PublishSealed
from seaweedmq.model.ring import RING_SLOTS_MAX, WHOLE_RING, KeyRange
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from tests.support.kafka_wire import partition_of
from tests.support.segments import make_segment

NOW_US = 1_700_000_000_000_000
HALF = RING_SLOTS_MAX // 2
FRAME_BYTES = 1 << 20


@dataclass(eq=False)
class Quiet:
    """A promise whose outcome the test ignores."""

    deadline_s: float = 100.0

    def acked(self, positions: Positions, segment: int, base_offset: int | None) -> None: ...

    def failed(self, positions: Positions, error: SeaweedMQError) -> None: ...


@dataclass
class Story:
    """An outbox, and the frames that its windows would send."""

    box: Outbox = field(
        default_factory=lambda: Outbox(
            TopicName("shop", "orders"), 7, random.Random(1), frame_bytes=FRAME_BYTES, bytes_max=8 << 20
        )
    )
    sent: int = 0

    def send(self, count: int, deadline_s: float = 100.0, value: bytes = b"") -> list[Action]:
        """Send records with values 0, 1, ... and ten keys."""
        numbers = range(self.sent, self.sent + count)
        self.sent += count
        keys, values = [b"key-%d" % (n % 10) for n in numbers], [b"%d" % n + value for n in numbers]
        columns = {"_key": pa.array(keys, pa.binary()), "_value": pa.array(values, pa.binary())}
        rows = Rows(pa.RecordBatch.from_pydict(columns), FLAG_KEY, NOW_US, numbers, Quiet(deadline_s))
        return self.box.add(rows)

    def open(self, segment: int, next_sequence: int = 0, frame_bytes_max: int = 1 << 24) -> list[Action]:
        ready = PublishReady(
            next_sequence=next_sequence,
            frame_bytes_max=frame_bytes_max,
            in_flight_frames_max=1_000,
            in_flight_bytes_max=1 << 24,
        )
        return self.box.opened(segment, ready)

    def take(self, segment: int) -> list[list[int]]:
        """Take the frames that may be sent now, as lists of values."""
        frames = []
        for data in self.box.take(segment, 1 << 30):
            (frame,) = split_frames(data)
            frames.append([int(value) for value in decode_frame(frame, None).column("_value").to_pylist()])
        return frames

    def values(self, segment: int) -> list[int]:
        """Take the values of :meth:`take` without the division into frames."""
        return [value for frame in self.take(segment) for value in frame]


def segment(number: int, lo: int = 0, hi: int = RING_SLOTS_MAX) -> Segment:
    return replace(make_segment(), id=number, slots=KeyRange(lo, hi))


def sealed(next_sequence: int, *successors: int) -> PublishSealed:
    return PublishSealed(end_offset=1_000, next_sequence=next_sequence, recent=(), successors=successors)


def told(actions: Iterable[Action]) -> list[str]:
    lines = []
    for action in actions:
        match action:
            case FrameAcked(positions, _, number, base_offset):
                lines.append(f"acked {list(positions)} in {number} at {base_offset}")
            case FrameFailed(positions, _, error):
                lines.append(f"failed {list(positions)}: {type(error).__name__}")
            case Deliver(number):
                lines.append(f"deliver {number}")
            case Reopen(number):
                lines.append(f"reopen {number}")
            case SendLimits(frame_bytes_max, batch_bytes):
                lines.append(f"frames up to {frame_bytes_max >> 20} MiB, batches of {batch_bytes >> 20} MiB")
    return lines


def test_rows_go_to_the_segments_of_their_keys_or_what_came_after_them_in_their_order() -> None:
    story = Story()
    actions = story.box.begin(WHOLE_RING, [segment(0, 0, HALF), segment(1, HALF)])
    assert told(actions) == [f"frames up to {FRAME_BYTES_MAX >> 20} MiB, batches of 2 MiB"]
    assert told(story.send(40)) == ["deliver 0", "deliver 1"]
    story.send(40)
    for number in story.box.segments:
        story.open(number)
    low, high = story.values(0), story.values(1)
    assert low == sorted(low)
    assert high == sorted(high)
    assert sorted(low + high) == list(range(80))
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0, 0, HALF), segment(1, HALF)])
    story.send(20)
    story.box.sealed(0, sealed(0, 2), [segment(2)])
    story.box.sealed(2, sealed(0, 3), [segment(3)])
    assert story.box.resolve([2]) == {3}, "the other side of the merge comes to it later"
    story.box.sealed(1, sealed(0, 2), [segment(3)])
    assert set(story.box.segments) == {3}
    story.open(3)
    assert sorted(story.values(3)) == list(range(20))


def test_after_a_split_what_was_not_kept_comes_before_what_is_sent_later() -> None:
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(10)
    story.open(0)
    assert story.take(0) == [list(range(10))]
    story.send(10)
    actions = story.box.sealed(0, sealed(10, 1, 2), [segment(1, 0, HALF), segment(2, HALF)])
    assert told(actions) == [
        "frames up to 16 MiB, batches of 2 MiB",
        "acked [0, 1, 2, 3, 4, 5, 6, 7, 8, 9] in 0 at None",
        "deliver 1",
        "deliver 2",
    ]
    assert set(story.box.segments) == {1, 2}
    story.send(10)
    story.open(1)
    story.open(2)
    low, high = story.values(1), story.values(2)
    assert low == sorted(low)
    assert high == sorted(high)
    assert sorted(low + high) == list(range(10, 30))


def test_while_successors_or_partitions_do_not_cover_the_ring_nothing_changes() -> None:
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(3)
    with pytest.raises(Unavailable):
        story.box.sealed(0, sealed(0, 1, 2), [segment(1, 0, HALF)])
    with pytest.raises(Unavailable):
        story.box.pruned(0, [segment(2, HALF)])
    assert len(story.box.window(0)) == 1
    story.open(0)
    assert story.take(0) == [[0, 1, 2]]
    story = Story()
    with pytest.raises(Unavailable, match="do not cover"):
        story.box.begin(KeyRange(0, 3), [segment(0, 0, 1)])
    story.box.begin(KeyRange(0, 1), [segment(0, 0, 1)])
    with pytest.raises(Unavailable, match="do not cover"):
        story.box.grow(KeyRange(0, 3), [segment(0, 0, 1), segment(2, 2, 3)])
    story.send(10)
    assert story.box.segments == {0}


def test_what_is_too_long_for_a_broker_is_cut_anew_and_a_record_that_fits_no_frame_fails() -> None:
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(2)
    story.send(4, value=b" " * 200_000)
    actions = story.open(0, frame_bytes_max=500_000)
    assert told(actions)[0] == "frames up to 0 MiB, batches of 0 MiB"
    assert told(actions)[1:] == ["deliver 0"]
    assert story.take(0) == [[0, 1], [2, 3], [4, 5]]
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(1)
    story.open(0, frame_bytes_max=100_000)
    assert told(story.send(1, value=b" " * 200_000)) == ["failed [1]: InvalidArgument", "deliver 0"]
    story.send(1)
    frames = story.box.take(0, 1 << 30)
    assert [decode_header(data).first_sequence for data in frames] == [0, 1]


def test_plain_records_of_a_topic_with_a_schema_and_overdue_ones_fail() -> None:
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(2)
    story.box.schema = pa.schema([("price", pa.int64())])
    assert told(story.send(2)) == ["failed [2, 3]: InvalidArgument"]
    actions = story.box.sealed(0, sealed(0, 1), [segment(1)])
    assert told(actions)[1:] == ["failed [0, 1]: InvalidArgument"]
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(2, deadline_s=10.0)
    story.open(0)
    assert told(story.box.expire(9.0)) == []
    assert told(story.box.expire(10.0)) == ["failed [0, 1]: DeadlineExceeded", "reopen 0"]


def test_a_forgotten_segment_gives_what_was_never_out_to_the_open_ones() -> None:
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(2)
    story.open(0)
    story.take(0)
    story.send(2)
    story.box.lost(0, Unavailable("gone"))
    assert story.box.last_errors() == "; last: gone"
    assert told(story.box.pruned(0, [segment(5)]))[1:] == ["failed [0, 1]: OutOfRange", "deliver 5"]
    story.open(5)
    assert story.take(5) == [[2, 3]]
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(2)
    story.open(0)
    story.box.sealed(0, sealed(0, 1), [segment(1)])
    with pytest.raises(Unavailable, match="is open in a recovered etcd"):
        story.box.pruned(1, [segment(0)])
    with pytest.raises(Unavailable, match="is open in a recovered etcd"):
        story.box.sealed(1, sealed(0), [segment(0)])
    assert set(story.box.segments) == {1}
    story.box.pruned(1, [segment(7)])
    assert set(story.box.segments) == {7}


def test_rows_wait_while_a_stream_is_behind_or_too_much_is_not_acknowledged() -> None:
    story = Story()
    story.box.begin(WHOLE_RING, [segment(0)])
    story.send(1, value=b" " * (AHEAD_BYTES + 1))
    assert not story.box.is_crowded, "no stream is open: who knows how fast it will be"
    story.open(0)
    assert story.box.is_crowded
    story.box.take(0, 1 << 30)
    assert not story.box.is_crowded
    story.send(1, value=b" " * (8 << 20))
    story.box.take(0, 1 << 30)
    assert story.box.is_crowded
    story.box.acked(0, FrameAck(0, 1, 0))
    story.box.acked(0, FrameAck(1, 1, 1))
    assert not story.box.is_crowded


def test_what_waits_for_a_partition_stays_in_it_when_there_are_more() -> None:
    story = Story()
    story.box.begin(KeyRange(0, 1), [segment(0, 0, 1)])
    story.send(10)  # one key each
    story.box.grow(KeyRange(0, 4), [segment(0, 0, 1), *(segment(number, number, number + 1) for number in (1, 2, 3))])
    story.send(10)
    segments = story.box.segments
    assert len(segments) > 1
    moved = segment(4, 0, 1)
    story.box.sealed(0, sealed(0, 4), [moved])
    assert story.box.segments == segments - {0} | {4}
    by_segment = {}
    for number in story.box.segments:
        story.open(number)
        by_segment[number] = story.values(number)
    assert by_segment[4][:10] == list(range(10))
    assert sorted(value for values in by_segment.values() for value in values) == list(range(20))
    for number, values in by_segment.items():
        partition = 0 if number == 4 else number
        assert all(partition_of(b"key-%d" % (value % 10), 4) == partition for value in values if value >= 10)
