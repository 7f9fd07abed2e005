"""The batch rows that each segment of a lineage receives, and when, as transcripts."""

import pytest

from seaweedmq.core.replay import Replay, RowSources
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.staged import StagedSegment

LOW, HIGH, ALL = KeyRange(0, 50), KeyRange(50, 100), KeyRange(0, 100)


def two_roots() -> Replay:
    return Replay([StagedSegment(1, LOW, ()), StagedSegment(2, HIGH, ())])


def test_roots_begin_at_once_a_half_gets_what_the_whole_did_not_keep_and_nothing_ends_twice() -> None:
    replay = two_roots()
    assert replay.ready() == [1, 2]
    assert replay.begin(1) == RowSources(LOW, ())
    assert replay.begin(2) == RowSources(HIGH, ())
    replay.finish(1, 10)
    assert not replay.is_done
    replay.finish(2, 10)
    assert replay.is_done
    replay = Replay([StagedSegment(1, ALL, ())])
    replay.begin(1)
    replay.learn([StagedSegment(2, LOW, (1,)), StagedSegment(3, HIGH, (1,))])
    replay.finish(1, 7, (2, 3))
    assert replay.ready() == [2, 3]
    assert replay.begin(3) == RowSources(HIGH, ((1, 7),))
    replay = two_roots()
    with pytest.raises(AssertionError, match="has not begun"):
        replay.finish(1, 1)
    replay.begin(1)
    replay.finish(1, 1)
    with pytest.raises(AssertionError, match="is finished"):
        replay.finish(1, 1)


def test_a_merged_segment_waits_for_both_sides_and_takes_the_lower_one_first_unless_it_kept_all() -> None:
    replay = two_roots()
    replay.begin(1), replay.begin(2)
    replay.learn([StagedSegment(3, ALL, (2, 1))])
    replay.finish(2, 5, (3,))
    assert replay.ready() == []
    replay.finish(1, 4, (3,))
    assert replay.ready() == [3]
    assert replay.begin(3) == RowSources(ALL, ((1, 4), (2, 5)))
    replay = two_roots()
    replay.begin(1), replay.begin(2)
    replay.learn([StagedSegment(3, ALL, (1, 2))])
    replay.finish(2, 5, (3,))
    replay.finish(1, 10)
    assert replay.begin(3) == RowSources(ALL, ((2, 5),))


def test_a_segment_nobody_was_sealed_for_yet_may_come_between() -> None:
    """1 was split into 4 and 5; 2 and 5 became 6. A replay that finished 2 does not know 4 and 5."""
    replay = two_roots()
    replay.begin(1), replay.begin(2)
    replay.learn([StagedSegment(6, ALL, (2, 5))])
    replay.finish(2, 5, (6,))
    assert replay.unknown() == {5}
    assert replay.ready() == []
    replay.learn([StagedSegment(5, KeyRange(25, 50), (1,))])
    assert replay.unknown() == set()
    assert replay.ready() == []
    replay.learn([StagedSegment(4, KeyRange(0, 25), (1,))])
    replay.finish(1, 3, (4, 5))
    assert replay.ready() == [4, 5]
    replay.begin(5)
    replay.finish(5, 1, (6,))
    assert replay.begin(6) == RowSources(ALL, ((2, 5), (5, 1)))


def test_it_waits_no_longer_for_what_can_not_come() -> None:
    """The same lineage, but 1 stored all of its rows before it was split."""
    replay = two_roots()
    replay.begin(1), replay.begin(2)
    replay.learn([StagedSegment(6, ALL, (2, 5)), StagedSegment(5, KeyRange(25, 50), (1,))])
    replay.finish(2, 5, (6,))
    replay.finish(1, 10)
    assert replay.begin(6) == RowSources(ALL, ((2, 5),))


def test_whoever_goes_on_from_a_note_is_where_it_was_written() -> None:
    replay = two_roots()
    replay.begin(1), replay.begin(2)
    replay.learn([StagedSegment(3, ALL, (1, 2))])
    replay.finish(2, 5, (3,))
    replay.finish(1, 4, (3,))
    again = two_roots()
    again.learn([StagedSegment(3, ALL, (1, 2))])
    again.restore(replay.finished)
    assert again.ready() == [3]
    assert again.finished == replay.finished


def test_whoever_goes_on_knows_of_segments_that_got_no_rows_too() -> None:
    """1 stored all of its rows and was split into 4 and 5; 2 and 5 became 6."""
    replay = two_roots()
    replay.begin(1), replay.begin(2)
    replay.learn([StagedSegment(6, ALL, (2, 5))])
    replay.finish(2, 5, (6,))
    replay.finish(1, 10)
    assert replay.unknown() == {5}
    replay.learn([StagedSegment(5, HIGH, (1,))])
    replay.begin(6)
    replay.finish(6, 3)
    again = two_roots()
    again.learn(replay.segments)
    again.restore(replay.finished)
    assert again.is_done


def test_ways_that_double_with_every_split_and_merge_are_looked_at_once() -> None:
    places = [StagedSegment(0, ALL, ()), StagedSegment(1, ALL, ())]
    for n in range(2, 400, 2):
        places += [StagedSegment(n, ALL, (n - 2, n - 1)), StagedSegment(n + 1, ALL, (n - 2, n - 1))]
    replay = Replay(places[:2])
    replay.begin(0), replay.begin(1)
    replay.learn(places[2:])
    replay.finish(0, 1, (399,))
    assert replay.ready() == []
    replay.finish(1, 9)
    assert replay.ready() == [399]
