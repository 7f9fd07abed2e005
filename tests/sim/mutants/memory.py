"""Mutants of memory limits in brokers; see ``mutants``."""

from typing import Any

import pytest

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.intake import Intake
from seaweedmq.broker.memory.read_permit import ReadPermit
from seaweedmq.broker.memory.sending import Sending
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES


def read_files_without_a_turn(patch: pytest.MonkeyPatch) -> None:
    """Every subscriber reads ahead without credit or permit, and keeps the records while it is paused."""

    async def begin(turn: Any, chunks: Any) -> None:
        turn._size = 0
        turn._chunks = chunks

    patch.setattr(ReadPermit, "begin", begin)
    patch.setattr(ReadPermit, "evict", lambda turn, bytes_wanted: 0)


def send_without_memory(patch: pytest.MonkeyPatch) -> None:
    """Messages are sent without reserved memory."""
    patch.setattr(Sending, "take_now", lambda sending, message_bytes: 0)


def take_in_any_message(patch: pytest.MonkeyPatch) -> None:
    """Every stream may send large messages at any time, without reserved memory."""

    def begin(intake: Any, budget: Any) -> None:
        intake._budget, intake._standing = budget, 0

    patch.setattr(Intake, "__init__", begin)
    patch.setattr(Intake, "message_bytes_max", property(lambda intake: LARGE_MESSAGE_BYTES))


def admit_after_receiving(patch: pytest.MonkeyPatch) -> None:
    """The payload of a large frame is received before memory for it is reserved."""

    async def admit(segment: Any, size_bytes: int) -> None:
        await admitted(segment, 0)
        segment._context.budget.used += size_bytes

    admitted = OpenSegment.admit
    patch.setattr(OpenSegment, "admit", admit)


def let_small_takers_pass(patch: pytest.MonkeyPatch) -> None:
    """Small requests for memory are served first, so that large ones may wait forever."""

    def take_now(budget: Any, size_bytes: int) -> bool:
        if not budget._make_room(size_bytes):
            return False
        budget._count(size_bytes)
        return True

    patch.setattr(MemoryBudget, "take_now", take_now)
