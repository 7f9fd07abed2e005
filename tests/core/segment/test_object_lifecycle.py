"""The lifecycle of an open segment on an object store, as transcripts: each event and the resulting actions."""

from collections.abc import Sequence
from dataclasses import replace

from seaweedmq.core.segment.commit_rule import RaiseHighWatermark, RequestFsync, RetrySoon
from seaweedmq.core.segment.segment_lifecycle import (
    Action,
    CommitFlushedOnly,
    Halt,
    NotifyPublishers,
    ObjectLifecycle,
    SegmentStage,
)
from seaweedmq.errors import StaleMetadata, Unavailable
from tests.support.segments import make_segment

TTL_S = 10.0


class Log:
    """Positions of a log; frames are written once all replicas hold them."""

    def __init__(self, *, waits_for_fsync: bool = False) -> None:
        self.committed = self.flushed = self.written = self.end = 0
        self.waits_for_fsync = waits_for_fsync


class Replicas:
    """A segment, step by step."""

    def __init__(self, count: int = 2, *, stored: bool = False) -> None:
        self.log = Log(waits_for_fsync=stored)
        names = tuple(f"b-{n}" for n in range(1, count + 1))
        self.lifecycle = ObjectLifecycle(replace(make_segment(), replicas=names), self.log)  # type: ignore[arg-type]
        self.lease_left_s = TTL_S
        self.unflushed_s = 0.0

    def store(self, *, end: int, written: int, flushed: int) -> Sequence[Action]:
        self.log.end, self.log.written, self.log.flushed = end, written, flushed
        actions = self.lifecycle.advanced(lease_left_s=self.lease_left_s, ttl_s=TTL_S, unflushed_s=self.unflushed_s)
        for action in actions:
            match action:
                case RaiseHighWatermark(offset):
                    self.log.committed = offset
                case CommitFlushedOnly():
                    self.log.waits_for_fsync = True
        return actions


def test_memory_of_all_replicas_is_enough_while_the_lease_has_its_margin() -> None:
    pair = Replicas()
    assert pair.store(end=5, written=3, flushed=0) == [RaiseHighWatermark(3), RetrySoon()]
    pair.lease_left_s = 0.39 * TTL_S
    assert pair.store(end=5, written=5, flushed=0) == [RequestFsync(), RetrySoon()], "bundle at once"
    assert pair.store(end=5, written=5, flushed=5) == [RaiseHighWatermark(5)]


def test_what_is_flushed_needs_no_lease() -> None:
    pair = Replicas()
    pair.lease_left_s = -1.0
    assert pair.store(end=2, written=2, flushed=2) == [RaiseHighWatermark(2)]
    alone = Replicas(1, stored=True)
    alone.lease_left_s = -1.0
    assert alone.store(end=2, written=2, flushed=1) == [RaiseHighWatermark(1)]


def test_an_old_frame_in_memory_ends_commits_by_memory() -> None:
    pair = Replicas()
    pair.unflushed_s = 5.0
    assert pair.store(end=2, written=2, flushed=0) == [RetrySoon()]


def test_one_machine_alone_commits_flushed_frames_only() -> None:
    assert Replicas(1).store(end=2, written=2, flushed=1) == [RaiseHighWatermark(1)]


def test_a_lost_follower_leaves_the_store() -> None:
    pair = Replicas()
    assert pair.lifecycle.follower_lost("b-2", Unavailable("gone")) == (CommitFlushedOnly(), RequestFsync())
    pair.log.waits_for_fsync = True
    assert pair.lifecycle.stage is SegmentStage.DOUBTFUL
    assert pair.store(end=4, written=4, flushed=2) == [RaiseHighWatermark(2)]


def test_nothing_is_committed_once_the_sequence_has_ended() -> None:
    for prepare in (lambda _: None, lambda each: each.drain(Unavailable("stop")), lambda each: each.seal()):
        pair = Replicas(1)
        prepare(pair.lifecycle)
        assert pair.lifecycle.sequence_ended() == (Halt(), NotifyPublishers())
        assert pair.lifecycle.stage is SegmentStage.FENCED
        assert isinstance(pair.lifecycle.rejection, StaleMetadata)
        assert pair.store(end=4, written=4, flushed=4) == ()
        assert pair.lifecycle.sequence_ended() == ()


def test_a_sealed_or_closed_segment_stays_so_when_the_sequence_ends() -> None:
    pair = Replicas(1)
    pair.lifecycle.seal()
    pair.lifecycle.all_flushed()
    assert pair.lifecycle.sequence_ended() == ()
    assert pair.lifecycle.stage is SegmentStage.SEALED
    pair.lifecycle.close(Unavailable("left"))
    assert pair.lifecycle.sequence_ended() == ()
