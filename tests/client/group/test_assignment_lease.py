"""The lease on a member's assignment: its start, renewal and end."""

from seaweedmq.client.group.assignment_lease import AssignmentLease
from seaweedmq.model.messages.groups import GroupAssignment


def assignment(trust_s: float | None) -> GroupAssignment:
    return GroupAssignment(generation=1, owned=(), trust_s=trust_s)


class Leased:
    """A lease, by a clock that stands."""

    def __init__(self, *trusts_s: float | None) -> None:
        self.now = 1_000.0
        self.lease = AssignmentLease(lambda: self.now)
        for trust_s in trusts_s:
            self.lease.opened(self.now, assignment(trust_s))


def test_while_a_stream_is_open_each_beat_renews_the_trust_and_it_is_believed_without_one_by_default() -> None:
    leased = Leased(3.0)
    for _ in range(100):
        leased.now += leased.lease.beat_s
        assert leased.lease.is_fresh
        assert leased.lease.beat()
    assert Leased().lease.is_fresh
    leased = Leased(None)
    leased.now += 1e6
    assert leased.lease.is_fresh
    assert leased.lease.beat()
    assert leased.lease.beat_s == 1.0


def test_without_a_stream_the_trust_ends_and_only_a_stream_that_was_opened_since_is_believed() -> None:
    leased = Leased(3.0)
    lease, opened_before = leased.lease, leased.now
    leased.now += 2.9
    assert lease.is_fresh
    leased.now += 0.2
    assert not lease.is_fresh
    assert not lease.beat()
    lease.opened(opened_before, assignment(3.0))  # the member read this old assignment late
    assert not lease.is_fresh
    lease.opened(leased.now, assignment(3.0))
    assert lease.is_fresh
