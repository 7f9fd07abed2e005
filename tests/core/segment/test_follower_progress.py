"""A follower is lost where it makes no progress, and later if it makes progress in other segments."""

from seaweedmq.core.segment.follower_progress import PATIENCE, FollowerProgress


def test_one_that_answers_nothing_is_given_up_after_the_timeout() -> None:
    progress = FollowerProgress()
    assert progress.is_abandoned(10.0, 3.0, 3.0), "it has never answered"
    progress.answered_s = 9.0
    assert progress.is_abandoned(10.0, 3.0, 3.0), "not since the timeout began"


def test_one_that_answers_for_other_segments_has_some_timeouts() -> None:
    progress = FollowerProgress()
    given_up = []
    for timeouts in range(1, PATIENCE + 1):
        progress.answered_s = 3.0 * timeouts - 0.1
        given_up.append(progress.is_abandoned(3.0 * (timeouts - 1), 3.0 * timeouts, 3.0))
    assert given_up == [False] * (PATIENCE - 1) + [True]
