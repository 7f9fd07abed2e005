"""The lease on a member's assignment: its start, renewal and end."""

from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.model.messages.groups import GroupAssignment


def assignment(trust_s: float | None) -> GroupAssignment:
    return GroupAssignment(generation=1, owned=(), trust_s=trust_s)


class Steady:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_while_a_stream_is_open_each_beat_renews_the_trust() -> None:
    clock = Steady()
    assignment_lease = AssignmentLease(clock)
    assignment_lease.opened(clock.now, assignment(3.0))
    for _ in range(100):
        clock.now += assignment_lease.beat_s
        assert assignment_lease.is_fresh
        assert assignment_lease.beat()


def test_who_stood_still_believes_only_a_stream_that_was_opened_since() -> None:
    clock = Steady()
    assignment_lease = AssignmentLease(clock)
    assignment_lease.opened(clock.now, assignment(3.0))
    opened_before = clock.now
    clock.now += 3.1
    assert not assignment_lease.is_fresh
    assert not assignment_lease.beat()
    assignment_lease.opened(opened_before, assignment(3.0))  # the member read this old assignment late
    assert not assignment_lease.is_fresh
    assignment_lease.opened(clock.now, assignment(3.0))
    assert assignment_lease.is_fresh


def test_without_a_stream_the_trust_ends() -> None:
    clock = Steady()
    assignment_lease = AssignmentLease(clock)
    assignment_lease.opened(clock.now, assignment(3.0))
    clock.now += 2.9
    assert assignment_lease.is_fresh
    clock.now += 0.2
    assert not assignment_lease.is_fresh


def test_a_coordinator_that_says_nothing_of_it_is_believed() -> None:
    clock = Steady()
    assignment_lease = AssignmentLease(clock)
    assert assignment_lease.is_fresh
    assignment_lease.opened(clock.now, assignment(None))
    clock.now += 1e6
    assert assignment_lease.is_fresh
    assert assignment_lease.beat()
    assert assignment_lease.beat_s == 1.0
