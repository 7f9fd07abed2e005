"""The lifecycle of an open segment on its primary, as transcripts: each event and the resulting actions."""

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from seaweedmq.core.segment.commit_rule import CheckFence, RaiseHighWatermark, RequestFsync, RetrySoon
from seaweedmq.core.segment.segment_lifecycle import (
    COMMITTING,
    STAGES,
    UNDISPUTED,
    Action,
    CommitFlushedOnly,
    Event,
    Halt,
    LeaveFollowers,
    NotifyPublishers,
    SegmentLifecycle,
    SegmentStage,
)
from seaweedmq.errors import Fenced, StaleMetadata, StorageFailed, Unavailable
from tests.support.segments import make_segment


class Log:
    """Positions of a log."""

    def __init__(self) -> None:
        self.committed = self.flushed = self.written = 0
        self.is_under_replicated = False

    @property
    def committable(self) -> int:
        return self.flushed if self.is_under_replicated else self.written


class Transcript:
    """A segment, step by step: each line has the event, the actions, and the resulting state."""

    def __init__(self, *replicas: str) -> None:
        self.log = Log()
        self.lease_alive = True
        self.lifecycle = SegmentLifecycle(replace(make_segment(), id=4, replicas=replicas), self.log)
        self.lines: list[str] = []

    def store(self, *, written: int = 0, flushed: int = 0) -> None:
        self.log.written = max(self.log.written, written)
        self.log.flushed = max(self.log.flushed, flushed)
        self.note(f"written {self.log.written} flushed {self.log.flushed}", self.progressed())

    def lease(self, alive: bool) -> None:
        self.lease_alive = alive
        self.note("lease is back" if alive else "lease has ended", self.progressed())

    def lose(self, error: Exception) -> None:
        self.event(f"b-2 is lost: {type(error).__name__}", self.lifecycle.follower_lost("b-2", error))  # type: ignore[arg-type]

    def fence_checked(self, *, fenced: bool) -> None:
        self.event("a fence" if fenced else "no fence", self.lifecycle.fence_checked(fenced=fenced))

    def storage_fails(self) -> None:
        self.note("the storage fails", self.perform(self.lifecycle.fence_check_failed(StorageFailed("no answer"))))

    def seal(self) -> None:
        self.note("seal", self.perform(self.lifecycle.seal()))

    def all_flushed(self) -> None:
        self.note("all flushed", self.perform(self.lifecycle.all_flushed()))

    def drain(self) -> None:
        self.note("drain", self.perform(self.lifecycle.drain(Unavailable("stopping"))))

    def close(self) -> None:
        self.note("close", self.perform(self.lifecycle.close(StaleMetadata("sealed"))))

    def event(self, what: str, actions: object) -> None:
        self.note(what, [*self.perform(actions), *self.progressed()])

    def progressed(self) -> list[str]:
        return self.perform(self.lifecycle.progressed(lease_alive=self.lease_alive))

    def perform(self, actions: object) -> list[str]:
        """Perform the actions as ``OpenSegment`` does."""
        done = []
        for action in actions:  # type: ignore[attr-defined]
            if isinstance(action, RaiseHighWatermark):
                self.log.committed = action.offset
            if isinstance(action, CommitFlushedOnly):
                self.log.is_under_replicated = True
            done.append(_told(action))
        return done

    def note(self, what: str, done: list[str]) -> None:
        failure = f", {type(self.lifecycle.failure).__name__}" if self.lifecycle.failure else ""
        self.lines.append(f"{what}: {', '.join(done) or '-'} ({self.lifecycle.stage}{failure})")


def _told(action: Action) -> str:
    match action:
        case RaiseHighWatermark(offset):
            return f"commit {offset}"
        case CheckFence(flushed):
            return f"look for {flushed}"
    return {
        CommitFlushedOnly: "only fsynced",
        Halt: "halt",
        LeaveFollowers: "leave followers",
        NotifyPublishers: "tell",
        RequestFsync: "sync",
        RetrySoon: "come again",
    }[type(action)]


def test_etcd_is_away_and_the_storage_shows_no_fence() -> None:
    transcript = Transcript("b-1", "b-2")
    transcript.store(written=10)
    transcript.lease(False)
    transcript.store(written=20)
    transcript.store(flushed=20)
    transcript.store(written=30, flushed=30)
    transcript.fence_checked(fenced=False)
    transcript.fence_checked(fenced=False)
    transcript.lease(True)
    assert transcript.lines == [
        "written 10 flushed 0: commit 10 (serving)",
        "lease has ended: - (serving)",
        "written 20 flushed 0: sync, come again (serving)",
        "written 20 flushed 20: look for 20, come again (serving)",
        "written 30 flushed 30: come again (serving)",
        "no fence: commit 20, look for 30, come again (serving)",
        "no fence: commit 30 (serving)",
        "lease is back: - (serving)",
    ]


def test_etcd_is_away_and_others_took_the_segment() -> None:
    transcript = Transcript("b-1", "b-2")
    transcript.lease(False)
    transcript.store(written=10, flushed=10)
    transcript.fence_checked(fenced=True)
    transcript.store(written=20, flushed=20)
    transcript.lease(True)
    transcript.close()
    assert transcript.lines == [
        "lease has ended: - (serving)",
        "written 10 flushed 10: look for 10, come again (serving)",
        "a fence: halt, tell (fenced, StaleMetadata)",
        "written 20 flushed 20: - (fenced, StaleMetadata)",
        "lease is back: - (fenced, StaleMetadata)",
        "close: halt (closed, StaleMetadata)",
    ]
    assert transcript.log.committed == 0


def test_the_storage_does_not_answer_for_a_while_and_a_check_from_before_a_follower_was_lost_counts() -> None:
    transcript = Transcript("b-1", "b-2")
    transcript.lease(False)
    transcript.store(written=10, flushed=10)
    transcript.storage_fails()
    transcript.storage_fails()
    transcript.fence_checked(fenced=False)
    assert transcript.lines[2:] == [
        "the storage fails: tell (serving, StorageFailed)",
        "the storage fails: - (serving, StorageFailed)",
        "no fence: commit 10 (serving)",
    ]
    transcript = Transcript("b-1", "b-2")
    transcript.lease(False)
    transcript.store(written=10, flushed=10)
    transcript.lose(Unavailable("gone"))
    transcript.fence_checked(fenced=True)
    assert transcript.lines[-1] == "a fence: halt, tell (fenced, StaleMetadata)"


def test_a_segment_without_followers_waits_for_the_lease() -> None:
    transcript = Transcript("b-1")
    transcript.lease(False)
    transcript.store(written=10, flushed=10)
    transcript.store(written=20)
    transcript.lease(True)
    assert transcript.lines == [
        "lease has ended: - (serving)",
        "written 10 flushed 10: tell, come again (serving, Unavailable)",
        "written 20 flushed 10: come again (serving, Unavailable)",
        "lease is back: commit 20 (serving)",
    ]


def test_what_a_lost_follower_held_is_fsynced_before_it_is_acknowledged() -> None:
    transcript = Transcript("b-1", "b-2")
    transcript.store(written=10)
    transcript.lose(Unavailable("gone"))
    transcript.store(written=20)
    transcript.store(flushed=20)
    transcript.seal()
    assert transcript.lines == [
        "written 10 flushed 0: commit 10 (serving)",
        "b-2 is lost: Unavailable: only fsynced, sync, come again (doubtful)",
        "written 20 flushed 0: come again (doubtful)",
        "written 20 flushed 20: commit 20, come again (doubtful)",
        "seal: halt, leave followers (sealing)",
    ]


@pytest.mark.parametrize(
    ("error", "failure"), [(Unavailable("gone"), "Unavailable"), (Fenced("epoch 2"), "StaleMetadata")]
)
def test_a_follower_is_lost_while_etcd_is_away(error: Exception, failure: str) -> None:
    transcript = Transcript("b-1", "b-2")
    transcript.lease(False)
    transcript.lose(error)
    transcript.store(written=10, flushed=10)
    assert transcript.lines[1:] == [
        f"b-2 is lost: {type(error).__name__}: only fsynced, sync, tell, come again (doubtful, {failure})",
        f"written 10 flushed 10: come again (doubtful, {failure})",
    ]


def test_it_is_sealed_and_whatever_comes_then_changes_nothing() -> None:
    transcript = Transcript("b-1", "b-2")
    transcript.store(written=10)
    transcript.seal()
    transcript.lose(Unavailable("gone"))
    transcript.store(written=20, flushed=20)
    transcript.seal()
    transcript.all_flushed()
    transcript.seal()
    transcript.close()
    assert transcript.lines[1:] == [
        "seal: halt, leave followers (sealing)",
        "b-2 is lost: Unavailable: - (sealing)",
        "written 20 flushed 20: - (sealing)",
        "seal: - (sealing)",
        "all flushed: - (sealed)",
        "seal: - (sealed)",
        "close: halt (closed)",
    ]
    assert transcript.log.committed == 10


def test_a_broker_leaves_with_the_only_replica() -> None:
    transcript = Transcript("b-1")
    transcript.store(written=10)
    transcript.drain()
    transcript.store(written=20)
    transcript.seal()
    assert transcript.lines[1:] == [
        "drain: - (draining)",
        "written 20 flushed 0: commit 20 (draining)",
        "seal: halt, leave followers (sealing)",
    ]


def test_every_stage_is_reached_and_can_be_closed_and_nothing_else_happens() -> None:
    reached, frontier = {SegmentStage.SERVING}, [SegmentStage.SERVING]
    while frontier:
        for following in STAGES[frontier.pop()].values():
            if following not in reached:
                reached.add(following)
                frontier.append(following)
    assert reached == set(SegmentStage)
    assert all(moves[Event.CLOSE] is SegmentStage.CLOSED for moves in STAGES.values())
    transcript = Transcript("b-1", "b-2")
    transcript.close()
    with pytest.raises(AssertionError, match="shop/orders#4 is closed: seal cannot happen"):
        transcript.lifecycle.seal()


class AnyFate(RuleBasedStateMachine):
    """Any order of events that the table allows."""

    def __init__(self) -> None:
        super().__init__()
        self.transcript = Transcript("b-1", "b-2")
        self.looks: list[int] = []
        self.most = 0

    def can(self, event: Event) -> bool:
        return event in STAGES[self.transcript.lifecycle.stage]

    def is_looking(self) -> bool:
        return bool(self.looks)

    def after(self) -> None:
        line = self.transcript.lines[-1]
        if "look for" in line:
            assert not self.looks, "one fence check at a time"
            self.looks.append(self.transcript.log.flushed)

    @rule(written=st.integers(0, 20), flushed=st.integers(0, 20), lease=st.booleans())
    def store(self, written: int, flushed: int, lease: bool) -> None:
        log = self.transcript.log
        self.transcript.lease_alive = lease
        before = log.committed
        self.transcript.store(written=log.written + written, flushed=min(log.flushed + flushed, log.written))
        assert log.committed == before or lease, "without the lease only a fence check lets it rise"
        self.after()

    @precondition(is_looking)
    @rule(fenced=st.booleans())
    def fence_checked(self, fenced: bool) -> None:
        target, before = self.looks.pop(), self.transcript.log.committed
        self.transcript.lease_alive = False
        self.transcript.fence_checked(fenced=fenced)
        assert self.transcript.log.committed in ({before} if fenced else {before, target})
        self.after()

    @precondition(lambda self: self.can(Event.FOLLOWER_LOST))
    @rule(error=st.sampled_from([Unavailable("gone"), Fenced("epoch 2")]))
    def lose(self, error: Exception) -> None:
        self.transcript.lose(error)
        self.after()

    @precondition(lambda self: self.can(Event.SEAL))
    @rule()
    def seal(self) -> None:
        self.transcript.seal()
        self.looks.clear()  # halted

    @precondition(lambda self: self.can(Event.ALL_FLUSHED))
    @rule()
    def all_flushed(self) -> None:
        self.transcript.all_flushed()

    @precondition(lambda self: self.can(Event.CLOSE))
    @rule()
    def close(self) -> None:
        self.transcript.close()
        self.looks.clear()

    @invariant()
    def holds(self) -> None:
        log, lifecycle = self.transcript.log, self.transcript.lifecycle
        assert log.committed <= log.written
        assert self.most <= log.committed, "the high watermark never falls"
        self.most = log.committed
        assert (lifecycle.rejection is None) == (lifecycle.stage in UNDISPUTED | {SegmentStage.FENCED})
        assert lifecycle.stage in COMMITTING or not self.looks


TestAnyFate = AnyFate.TestCase
TestAnyFate.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
