"""Brokers that the leader queries to seal a segment, and the log that determines its end."""

from dataclasses import replace

from seaweedmq.core.segment.sealing import longest_first, seal_candidates
from tests.support.segments import make_segment

SEGMENT = replace(make_segment(), replicas=("b-1", "b-2", "b-3"))


def test_the_primary_is_asked_else_its_followers_the_longest_log_first_and_else_files() -> None:
    whom = seal_candidates(SEGMENT, {"b-1", "b-3", "b-9"})
    assert (whom.primary, whom.followers, whom.files) == ("b-1", ("b-3",), False)
    whom = seal_candidates(SEGMENT, {"b-2", "b-3"})
    assert (whom.primary, whom.followers, whom.files) == (None, ("b-2", "b-3"), False)
    assert seal_candidates(SEGMENT, {"b-8"}).files
    for survivor in SEGMENT.replicas:
        assert not seal_candidates(SEGMENT, {survivor}).files, f"{survivor} could still acknowledge, or hold more"
    ends = {"b-2": 10, "b-3": 30, "b-4": None, "b-5": 20}
    assert " ".join(name for name, _ in longest_first(ends)) == "b-3 b-5 b-2 b-4"
