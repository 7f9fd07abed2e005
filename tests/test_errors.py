"""Tests of errors that are kept and raised repeatedly."""

from seaweedmq.client.publish.send_room import NoRoom
from seaweedmq.errors import InvalidArgument, SeaweedMQError, Unavailable, fresh
from tests.support.tracebacks import depth


def raised(error: SeaweedMQError) -> SeaweedMQError:
    try:
        raise error
    except SeaweedMQError as again:
        return again


def test_a_fresh_error_is_the_same_without_the_frames_it_went_through() -> None:
    cause = ValueError("why")
    kept = Unavailable("not now")
    kept.__cause__ = cause
    raised(kept)
    again = fresh(kept)
    assert (type(again), again.args, str(again), again.__cause__) == (Unavailable, ("not now",), "not now", cause)
    assert again is not kept
    assert again.__traceback__ is None


def test_a_fresh_error_keeps_attributes_and_hides_no_context() -> None:
    kept = NoRoom(17)
    again = fresh(kept)
    assert (again.size_bytes, str(again)) == (17, str(kept))
    assert not again.__suppress_context__


def test_raising_a_kept_error_makes_its_traceback_longer_and_raising_fresh_ones_does_not() -> None:
    kept = InvalidArgument("no")
    assert [depth(raised(kept)) for _ in range(3)] == [1, 2, 3]
    assert [depth(raised(fresh(kept))) for _ in range(3)] == [1, 1, 1]
