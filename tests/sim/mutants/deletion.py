"""Mutants of deleting records manually; see ``mutants``."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.leader.topics import record_deletion
from seaweedmq.broker.serve import subscribe
from seaweedmq.broker.serve.lookup import ServedSegment
from seaweedmq.broker.upkeep import deleted_records
from seaweedmq.core.files import retention
from seaweedmq.core.files.retention import Listed
from seaweedmq.model.files import FileKind
from seaweedmq.storage.read import recovery


def give_what_was_deleted_while_it_is_there(patch: pytest.MonkeyPatch) -> None:
    """A subscriber from the earliest offset gets deleted records that are still in a file."""

    async def earliest(store: Any, topic: Any, segment: Any) -> int:
        return await recovery.earliest_offset(store, replace(topic, low_watermarks=()), segment)

    patch.setattr(subscribe, "earliest_offset", earliest)
    patch.setattr(ServedSegment, "low_watermark", 0)


def let_low_watermarks_fall(patch: pytest.MonkeyPatch) -> None:
    """A smaller deletion lowers the low watermark that an earlier one set."""

    def lowered(topic: Any, before: Any, high_watermarks: Any) -> tuple[int, ...]:
        return raised(replace(topic, low_watermarks=()), before, high_watermarks)

    raised = record_deletion.raised
    patch.setattr(record_deletion, "raised", lowered)


def delete_files_that_begin_below(patch: pytest.MonkeyPatch) -> None:
    """A table is deleted together with its records above the low watermark."""

    def expired(segments: Sequence[Listed], policy: Any, now_us: int) -> Any:
        reaching = []
        for segment in segments:
            tables = [f for f in segment.files if f.kind is FileKind.TABLE and f.base_offset < segment.low_watermark]
            reaching.append(max([f.end_offset or 0 for f in tables], default=segment.low_watermark))
        grown = [s._replace(low_watermark=low) for s, low in zip(segments, reaching, strict=True)]
        return expire(grown, policy, now_us)

    expire = retention.expired_files
    patch.setattr(retention, "expired_files", expired)


def rewrite_tables_from_one_record_later(patch: pytest.MonkeyPatch) -> None:
    """A table rewritten without its deleted records also loses its first remaining record."""

    def one_too_many(files: Any, low_watermark: int) -> Any:
        merge = partly(files, low_watermark)
        if merge is None or merge.base_offset + 1 >= merge.end_offset:
            return merge
        return replace(merge, low_watermark=low_watermark + 1)

    partly = deleted_records.partly_deleted
    patch.setattr(deleted_records, "partly_deleted", one_too_many)
