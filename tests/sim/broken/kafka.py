"""Broken variants of what Kafka's producers rely on: their place in a partition outlives the segments of it."""

from collections.abc import Callable
from typing import Any

import pytest

from seaweedmq.broker.serve.heritage import Heritage
from seaweedmq.core.kafka.refused_sequences import RefusedSequences
from seaweedmq.core.lineage import elders

Break = Callable[[pytest.MonkeyPatch], None]


def forget_kafka_producers_at_the_seal(patch: pytest.MonkeyPatch) -> None:
    """A successor knows no producer, and lets each begin anywhere."""

    async def nothing(heritage: Any, header: Any) -> None:
        """Ask nobody."""

    patch.setattr(Heritage, "learn", nothing)


def ask_the_last_segment_alone(patch: pytest.MonkeyPatch) -> None:
    """Who sent nothing to it has sent nothing ever."""
    patch.setattr(elders, "GENERATIONS_MAX", 1)


def go_on_behind_what_was_refused(patch: pytest.MonkeyPatch) -> None:
    """The second frame of an unknown producer is taken, though the first was refused."""
    patch.setattr(RefusedSequences, "is_behind", lambda refused, who, epoch, sequence: False)


BROKEN: tuple[Break, ...] = (
    forget_kafka_producers_at_the_seal,
    ask_the_last_segment_alone,
    go_on_behind_what_was_refused,
)
