"""Deliberately broken variants of the code: the simulation has to catch each of them, or it proves nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker import publish, sealer
from seaweedmq.broker.follower import FollowerService
from seaweedmq.broker.segment import OpenSegment
from seaweedmq.core.replica import Replica
from seaweedmq.core.sealing import Whom
from seaweedmq.core.segment_log import SegmentLog
from seaweedmq.model.segment import SegmentState
from seaweedmq.storage import tables
from seaweedmq.storage.memory_converter import MemoryTableConverter
from tests.sim.storage import SimStore

Break = Callable[[pytest.MonkeyPatch], None]


def accept_old_epochs(patch: pytest.MonkeyPatch) -> None:
    """No fencing: a follower goes on following after it was asked to stop."""

    def fence(replica: Any, epoch: int) -> int:
        end: int = replica.end
        return end

    patch.setattr(Replica, "fence", fence)
    patch.setattr(Replica, "check_epoch", lambda replica, epoch: None)

    async def write_out(service: Any, ref: Any, end_offset: int) -> Any:
        replica = service._replicas.get((ref.topic, ref.segment))
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
    """What is written at the primary is committed; followers catch up some time."""
    patch.setattr(SegmentLog, "replicated", property(lambda log: log.end))


def forget_sequences_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    """A publisher that comes to a sealed segment is told that nothing of it was stored."""
    sealed = publish.PublishService._sealed

    async def forgetful(service: Any, topic: Any, segment: Any, opening: Any) -> Any:
        return replace(await sealed(service, topic, segment, opening), next_sequence=0, recent=())

    patch.setattr(publish.PublishService, "_sealed", forgetful)


def ignore_the_end_offset(patch: pytest.MonkeyPatch) -> None:
    """What files hold beyond the end of a sealed segment counts."""
    recover = publish.recover_segment  # type: ignore[attr-defined]

    async def recover_all(store: Any, topic: Any, segment: Any) -> Any:
        return await recover(store, topic, replace(segment, end_offset=None, state=SegmentState.OPEN))

    patch.setattr(publish, "recover_segment", recover_all)


def take_a_short_log(patch: pytest.MonkeyPatch) -> None:
    """A segment ends where its follower was last told that records are committed, not where its log ends.

    (The shortest whole log among the followers would do: each has all that was acknowledged.)
    """
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
    """A primary commits without a look at its lease."""
    begin = OpenSegment.__init__

    def trusting(segment: Any, topic: Any, metadata: Any, context: Any, *args: Any, **kwargs: Any) -> None:
        begin(segment, topic, metadata, replace(context, lease_alive=lambda: True), *args, **kwargs)

    patch.setattr(OpenSegment, "__init__", trusting)


def commit_before_write(patch: pytest.MonkeyPatch) -> None:
    """What is in memory is committed."""
    patch.setattr(SegmentLog, "committable", property(lambda log: log.end))


def commit_before_fsync(patch: pytest.MonkeyPatch) -> None:
    """``stored`` is acknowledged like ``replicated``."""
    patch.setattr(SegmentLog, "committable", property(lambda log: log.written))


def believe_files_while_a_replica_lives(patch: pytest.MonkeyPatch) -> None:
    """Whatever happens to a segment, its files are taken for all there is."""
    patch.setattr(sealer, "whom_to_ask", lambda segment, live: Whom(primary=None, followers=(), files=True))


def seal_from_files_without_fsync(patch: pytest.MonkeyPatch) -> None:
    """What a dead writer left unsynced is counted, and may be gone later."""

    async def nothing(store: Any, files: Any) -> None:
        """Believe the page cache."""

    patch.setattr(SimStore, "sync_files", nothing)


def drop_the_last_frame_of_a_table(patch: pytest.MonkeyPatch) -> None:
    """A table ends a frame before its name says."""
    add = tables._Run.add
    waiting: dict[Any, Any] = {}

    def add_the_one_before(run: Any, rows: Any) -> None:
        if run in waiting:
            add(run, waiting[run])
        waiting[run], run._end = rows, rows.end

    patch.setattr(tables._Run, "add", add_the_one_before)


def convert_beyond_the_end(patch: pytest.MonkeyPatch) -> None:
    """Tables hold whatever the log files hold."""
    convert = MemoryTableConverter.convert

    async def convert_all(converter: Any, topic: Any, logs: Any, end_offset: Any) -> Any:
        return await convert(converter, topic, logs, None)

    patch.setattr(MemoryTableConverter, "convert", convert_all)


MUTANTS: dict[str, Break] = {
    broken.__name__: broken
    for broken in (
        accept_old_epochs,
        acknowledge_before_the_follower,
        forget_sequences_at_the_seal,
        ignore_the_end_offset,
        take_a_short_log,
        trust_a_lease_that_ran_out,
        commit_before_write,
        commit_before_fsync,
        believe_files_while_a_replica_lives,
        seal_from_files_without_fsync,
        drop_the_last_frame_of_a_table,
        convert_beyond_the_end,
    )
}

DATA_RULES = {
    "lost",
    "duplicated",
    "one value per offset",
    "reordered",
    "offsets fall",
    "gap",
    "elsewhere",
    "lineage",
    "uncommitted",
    "one primary",
    "order",
    "replica",
    "sealed behind its back",
    "reader gave up",
    "files",
}
"""A broken variant counts as caught by these only: not by a hang, nor by something that fails without it too."""
