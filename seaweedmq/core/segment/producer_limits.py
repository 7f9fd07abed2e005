"""How many producers are remembered, for how long, and what that costs."""

import math
import sys
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.config import STREAM_IN_FLIGHT_FRAMES_MAX, BrokerConfig

PRODUCER_BYTES = 800
"""What one takes in memory beside its frames. Measured with them: 905 of 16 frames, 18,065 of 1,024."""
FRAME_BYTES = 17
KAFKA_IN_FLIGHT_FRAMES_MAX = 5
"""What Kafka's idempotent producers have in flight to a partition at most."""
MEMORY_SHARE = 8
"""Producers may take an eighth of a broker's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    """Of one segment."""

    producers: int
    """Beyond it, those that can not repeat anything any more are forgotten."""
    idle_s: float
    """How long after the end of its stream a producer may still repeat something."""
    frames: int
    """Remembered a producer. Invariant: not below what the primary lets be in flight, so that every frame that a client
    may still repeat finds its acknowledgement."""

    @classmethod
    def of(cls, config: BrokerConfig) -> "ProducerLimits":
        return cls(
            producers=config.producers_per_segment_max,
            idle_s=config.producer_idle_s,
            frames=max(config.stream_in_flight_frames_max, KAFKA_IN_FLIGHT_FRAMES_MAX),
        )

    @classmethod
    def none(cls) -> "ProducerLimits":
        """For whoever reads a log: the bound is in what was written. Frames as of the broker that allows most."""
        return cls(producers=sys.maxsize, idle_s=math.inf, frames=STREAM_IN_FLIGHT_FRAMES_MAX)


class Forgetful(Protocol):
    """A producer table, as the pool sees it."""

    def forget_settled(self, now: float) -> int: ...


class ProducerPool:
    """Producers that a broker remembers over all its segments, those it follows included. At the bound it takes no new
    ones; what a primary has accepted, its followers take in any case."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._tables: dict[Forgetful, None] = {}

    @classmethod
    def of(cls, config: BrokerConfig) -> "ProducerPool":
        cost = PRODUCER_BYTES + FRAME_BYTES * config.stream_in_flight_frames_max
        return cls(min(config.producers_max, config.memory_bytes_max // MEMORY_SHARE // cost))

    def join(self, table: Forgetful) -> None:
        """A table that counts from now on."""
        self._tables[table] = None

    def leave(self, table: Forgetful, producers: int) -> None:
        """The table, and the producers it has, are gone."""
        del self._tables[table]
        self.used -= producers
        assert self.used >= 0

    def check_room(self, now: float) -> None:
        """Raise ResourceExhausted unless one more may be remembered, now or after somebody else was forgotten."""
        if self.used < self.limit:
            return
        for table in self._tables:
            table.forget_settled(now)
        if self.used >= self.limit:
            raise ResourceExhausted(
                f"this broker remembers {self.used:,} producers, and may remember {self.limit:,} (producers_max, and "
                "an eighth of memory_bytes_max): retry later, they are forgotten producer_idle_s after their streams "
                "ended; share publishers between tasks, raise the limits, or add brokers"
            )
