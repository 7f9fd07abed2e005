"""Mutants of the code: the simulation has to catch each of them, or it proves nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.leader import sealer, transition_runner
from seaweedmq.broker.segment.follower import FollowerService
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.broker.serve import publish, sealed_producers
from seaweedmq.coordination.session import Session
from seaweedmq.core.group.group_progress import GroupProgress
from seaweedmq.core.segment.replica import Replica
from seaweedmq.core.segment.sealing import SealCandidates
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.model.ring import KeyRange
from seaweedmq.model.segment import SegmentState
from seaweedmq.storage.tables import convert
from tests.doubles.memory_converter import MemoryTableConverter
from tests.sim.machines.storage import SimStore

Break = Callable[[pytest.MonkeyPatch], None]


def accept_old_epochs(patch: pytest.MonkeyPatch) -> None:
    """A follower accepts frames of old epochs after it was fenced."""

    def fence(replica: Any, epoch: int) -> int:
        end: int = replica.end
        return end

    patch.setattr(Replica, "fence", fence)
    patch.setattr(Replica, "check_epoch", lambda replica, epoch: None)

    async def write_out(service: Any, ref: Any, end_offset: int) -> Any:
        replica = service.replicas.get((ref.topic_uid, ref.segment))
        if replica is None:
            return await written_out(service, ref, end_offset)
        epoch, replica.epoch, replica.fenced = replica.epoch, ref.epoch, True
        try:
            return await written_out(service, ref, end_offset)
        finally:
            replica.epoch, replica.fenced = epoch, False

    written_out = FollowerService.write_out
    patch.setattr(FollowerService, "write_out", write_out)


def acknowledge_before_the_follower(patch: pytest.MonkeyPatch) -> None:
    """A primary commits written records that its followers do not have yet."""
    patch.setattr(SegmentLog, "replicated", property(lambda log: log.end))


def forget_sequences_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    """A sealed segment tells a publisher that it stored none of its records."""
    sealed = publish.PublishService._sealed

    async def forgetful(service: Any, topic: Any, segment: Any, opening: Any, first: int) -> Any:
        return replace(await sealed(service, topic, segment, opening, first), next_sequence=first, recent=())

    patch.setattr(publish.PublishService, "_sealed", forgetful)


def ignore_the_end_offset(patch: pytest.MonkeyPatch) -> None:
    """Records in files beyond a sealed segment's end offset count."""
    recover = sealed_producers.recover_segment  # type: ignore[attr-defined]

    async def recover_all(store: Any, topic: Any, segment: Any) -> Any:
        return await recover(store, topic, replace(segment, end_offset=None, state=SegmentState.OPEN))

    patch.setattr(sealed_producers, "recover_segment", recover_all)


def take_a_short_log(patch: pytest.MonkeyPatch) -> None:
    """A segment ends at its follower's last known high watermark, not at the end of the follower's log.

    (The shortest complete log among the followers would be correct: each has all acknowledged records.)"""
    fence = Replica.fence

    def cut(replica: Any, epoch: int) -> int:
        fence(replica, epoch)
        while replica._entries and replica._entries[-1].end_offset > replica.committed:
            replica._entries.pop()
        replica.end = replica._entries[-1].end_offset if replica._entries else replica.committed
        end: int = replica.end
        return end

    patch.setattr(Replica, "fence", cut)


def trust_a_lease_that_ran_out(patch: pytest.MonkeyPatch) -> None:
    """A primary commits without checking its lease."""
    begin = OpenSegment.__init__

    def trusting(segment: Any, topic: Any, metadata: Any, context: Any, *args: Any, **kwargs: Any) -> None:
        begin(segment, topic, metadata, replace(context, lease_alive=lambda: True), *args, **kwargs)

    patch.setattr(OpenSegment, "__init__", trusting)


def commit_before_write(patch: pytest.MonkeyPatch) -> None:
    """A primary commits records that are only in memory."""
    patch.setattr(SegmentLog, "committable", property(lambda log: log.end))


def commit_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """``stored`` records are acknowledged like ``replicated`` ones."""
    patch.setattr(SegmentLog, "committable", property(lambda log: log.written))


def believe_files_while_a_replica_lives(patch: pytest.MonkeyPatch) -> None:
    """A segment is always sealed from its files, even while a replica lives."""
    patch.setattr(
        sealer, "seal_candidates", lambda segment, live: SealCandidates(primary=None, followers=(), files=True)
    )


def seal_from_files_without_fsync(patch: pytest.MonkeyPatch) -> None:
    """The seal counts unflushed records of a dead writer, which may be lost later."""

    async def nothing(store: Any, files: Any) -> None:
        """Trust the page cache."""

    patch.setattr(SimStore, "sync_files", nothing)


def do_not_look_for_the_fence(patch: pytest.MonkeyPatch) -> None:
    """A primary without a lease continues although its segment is fenced."""

    async def never(store: Any, topic: Any, uid: int, segment: int) -> bool:
        return False

    patch.setattr(SimStore, "is_fenced", never)


def lead_at_once(patch: pytest.MonkeyPatch) -> None:
    """A new leader trusts files while a primary may not know yet that etcd has lost its lease."""

    async def at_once(session: Any) -> None:
        """Skip the wait for old leases."""

    patch.setattr(Session, "await_expired_leases", at_once)


def forget_what_is_not_fsynced(patch: pytest.MonkeyPatch) -> None:
    """A follower drops committed records that only the primary's page cache has."""
    on_progress = Replica.on_progress
    patch.setattr(
        Replica,
        "on_progress",
        lambda replica, epoch, committed, flushed: on_progress(replica, epoch, committed, committed),
    )


def forget_a_slot_at_a_split(patch: pytest.MonkeyPatch) -> None:
    """The upper successor of a split begins one slot too late."""
    succeed = transition_runner.succeed

    def with_a_hole(*args: Any, **kwargs: Any) -> Any:
        change = succeed(*args, **kwargs)
        *before, last = change.segments
        if len([s for s in change.segments if s.is_open]) < 2 or last.slots.width == 1:
            return change
        return replace(change, segments=(*before, replace(last, slots=KeyRange(last.slots.lo + 1, last.slots.hi))))

    patch.setattr(transition_runner, "succeed", with_a_hole)


def merge_where_the_shorter_one_ends(patch: pytest.MonkeyPatch) -> None:
    """The successor of a merge begins at the end of the shorter predecessor."""
    succeed = transition_runner.succeed

    def short(topic: Any, predecessors: Any, **kwargs: Any) -> Any:
        change = succeed(topic, predecessors, **kwargs)
        end = min(predecessor.end_offset for predecessor in predecessors)
        return replace(
            change, segments=tuple(replace(s, start_offset=end) if s.is_open else s for s in change.segments)
        )

    patch.setattr(transition_runner, "succeed", short)


def drop_the_last_frame_of_a_table(patch: pytest.MonkeyPatch) -> None:
    """A table ends one frame before its name says."""
    add = convert._Run.add
    waiting: dict[Any, Any] = {}

    def add_the_one_before(run: Any, rows: Any) -> None:
        if run in waiting:
            add(run, waiting[run])
        waiting[run], run._end = rows, rows.end

    patch.setattr(convert._Run, "add", add_the_one_before)


def convert_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    """Tables contain records beyond a segment's end."""
    convert = MemoryTableConverter.convert

    async def convert_all(converter: Any, topic: Any, logs: Any, end_offset: Any) -> Any:
        return await convert(converter, topic, logs, None)

    patch.setattr(MemoryTableConverter, "convert", convert_all)


def assign_successors_early(patch: pytest.MonkeyPatch) -> None:
    """A group assigns a segment before it has finished the segment's predecessors."""

    def due(progress: Any) -> list[int]:
        return [segment for segment in sorted(progress.segments) if not progress.finished(segment)]

    patch.setattr(GroupProgress, "due", due)


DATA_RULES = {
    "lost", "duplicated", "one value per offset", "reordered", "offsets fall", "gap", "elsewhere", "lineage",
    "uncommitted", "one primary", "order", "replica", "sealed behind its back", "reader gave up", "refused", "files",
    "made good", "RingIsPartitioned", "SegmentsNeverChange", "LineageRises", "GroupOffsetsNeverFall", "Recovered",
    "not recovered", "group lost", "group reordered", "group duplicated", "held back", "spins", "zombie",
    "BrokersHaveLeases", "served", "memory", "one kind", "no outcome", "raised again", "never sent", "retention",
    "neglected", "metadata", "skipped", "never read", "forgotten", "passed on", "refused and read", "deleted",
    "deleted unasked", "own address", "order of replies", "watermark", "generations", "two owners", "commits",
    "left waiting", "no broker shown", "gave up", "lost root",
}  # fmt: skip
"""Violations that prove a mutant caught: a hang, or a failure that also occurs without the mutant, does not count."""
