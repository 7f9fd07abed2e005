"""Mutants of file durability and retention; see ``mutants``."""

import math
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.confirmed_clock import ConfirmedClock
from seaweedmq.broker.leader import sealer
from seaweedmq.broker.segment.segment_files import SegmentFiles
from seaweedmq.broker.upkeep.maintenance import Maintenance
from seaweedmq.broker.upkeep.retention import Retention
from seaweedmq.core.files import retention
from seaweedmq.core.files.seen_tables import SeenTables
from seaweedmq.storage.logs.lost_blocks import LostBlocks
from seaweedmq.storage.read import recovery


def believe_every_preamble(patch: pytest.MonkeyPatch) -> None:
    """A log file proves all records below it, although the end of the previous file may never have been fsynced."""
    preamble_of = recovery._preamble_of

    async def believed(store: Any, topic: Any, log: Any) -> Any:
        preamble = await preamble_of(store, topic, log)
        return preamble and replace(preamble, flushed=preamble.base_offset)

    patch.setattr(recovery, "_preamble_of", believed)


def begin_files_behind_one_that_may_vanish(patch: pytest.MonkeyPatch) -> None:
    """A log file begins before the previous one was fsynced once."""
    create = SegmentFiles._create_file

    async def create_at_once(files: Any, base: int) -> Any:
        file = await create(files, base)
        file.is_durable = True
        return file

    patch.setattr(SegmentFiles, "_create_file", create_at_once)


def take_a_lost_block_for_damage(patch: pytest.MonkeyPatch) -> None:
    """Recovery takes any bad block before a sound frame for damage, and the segment cannot be sealed."""
    patch.setattr(LostBlocks, "found_in", lambda *args, **options: False)


def expire_by_modification_time(patch: pytest.MonkeyPatch) -> None:
    """Retention deletes tables with old modification times, even from the middle of a segment."""

    def old_files(segments: Any, policy: Any, now_us: int) -> list[Any]:
        files = [f for segment in segments for f in segment.files]
        logs = [f for f in expire(segments, replace(policy, retention_us=None), now_us) if f.kind == "log"]
        if policy.retention_us is None:
            return logs
        due_us = now_us - policy.retention_us - policy.log_grace_us
        return logs + [f for f in files if f.kind == "table" and f.modified_us <= due_us]

    expire = retention.expired_files
    patch.setattr(retention, "expired_files", old_files)


def trust_the_clock_of_the_broker(patch: pytest.MonkeyPatch) -> None:
    """A broker whose clock is ahead deletes files that the storage has just dated, and files that it has just seen
    appear."""

    def of_the_broker_us(keeper: Any, watched_s: float, period_s: float) -> int:
        return int(keeper._clock._env.wall_us())

    patch.setattr(Retention, "_confirmed_us", of_the_broker_us)
    patch.setattr(Retention, "_confirmed_by_both_us", of_the_broker_us)
    patch.setattr(ConfirmedClock, "confirmed_us", lambda clock, period_s: clock._env.wall_us())
    patch.setattr(SeenTables, "absent", lambda seen, segment, steady_s: ())


def look_again_by_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """A clock that is set back stops file maintenance until it reaches the old time again."""
    begin, maintain = Maintenance.__init__, Retention._maintain

    def is_there_again(keeper: Any) -> bool:
        now_us = keeper._clock._env.wall_us()
        latest_us = keeper.__dict__.setdefault("latest_us", now_us)
        keeper.latest_us = max(now_us, latest_us)
        return bool(now_us >= latest_us)

    async def wait_for_the_clock(keeper: Any, name: Any) -> None:
        if is_there_again(keeper):
            await maintain(keeper, name)

    def begin_with_conversion(keeper: Any, **parts: Any) -> None:
        begin(keeper, **parts)
        conversion = keeper._conversion
        convert = conversion.round

        async def wait() -> Any:
            return await convert() if is_there_again(keeper) else set()

        conversion.round = wait

    patch.setattr(Maintenance, "__init__", begin_with_conversion)
    patch.setattr(Retention, "_maintain", wait_for_the_clock)


def believe_files_before_they_are_fsynced(patch: pytest.MonkeyPatch) -> None:
    """The seal counts records that a dead writer left in its machine's page cache, which is lost before the fsync."""

    synced: set[str] = set()

    async def second_only(sealing: Any, topic: Any, segment: Any) -> None:
        key = f"{topic.uid}/{segment.id}"
        if key in synced:
            await sync_logs(sealing, topic, segment)
        synced.add(key)

    sync_logs = sealer.Sealer._sync_logs
    patch.setattr(sealer.Sealer, "_sync_logs", second_only)


def let_a_torso_stand_for_the_last_log(patch: pytest.MonkeyPatch) -> None:
    """All logs but the newest may be deleted, even if the newest is incomplete and has no producer state."""
    patch.setattr(retention, "_last_proven_base", lambda files: math.inf)
