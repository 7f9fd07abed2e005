"""Broken variants about what files keep, as ``mutants`` has them."""

from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.segment_files import SegmentFiles
from seaweedmq.storage import recovery
from seaweedmq.storage.lost_blocks import LostBlocks
from tests.sim.mutants import Break


def believe_every_preamble(patch: pytest.MonkeyPatch) -> None:
    """A log file proves all that lies below it, though the end of the one before it may never have been fsynced."""
    preamble_of = recovery._preamble_of

    async def believed(store: Any, topic: Any, log: Any) -> Any:
        preamble = await preamble_of(store, topic, log)
        return preamble and replace(preamble, flushed=preamble.base_offset)

    patch.setattr(recovery, "_preamble_of", believed)


def begin_files_behind_one_that_may_vanish(patch: pytest.MonkeyPatch) -> None:
    """A log file begins before the one it follows was fsynced once."""
    create = SegmentFiles._create_file

    async def create_at_once(files: Any, base: int) -> Any:
        file = await create(files, base)
        file.is_durable = True
        return file

    patch.setattr(SegmentFiles, "_create_file", create_at_once)


def take_a_lost_block_for_damage(patch: pytest.MonkeyPatch) -> None:
    """Whatever is followed by a sound frame is damage, and the segment can not be sealed."""
    patch.setattr(LostBlocks, "found_in", lambda *args, **options: False)


BROKEN: tuple[Break, ...] = (
    believe_every_preamble,
    begin_files_behind_one_that_may_vanish,
    take_a_lost_block_for_damage,
)
