"""Limits of the number of remembered producers, the time they are remembered, and their memory cost."""

import math
import sys
from dataclasses import dataclass
from typing import Protocol

from seaweedmq.errors import ResourceExhausted
from seaweedmq.model.config import STREAM_IN_FLIGHT_FRAMES_MAX, BrokerConfig

PRODUCER_BYTES = 800
"""Memory of one producer without its frames. Measured with them: 905 bytes at 16 frames, 18,065 at 1,024."""
FRAME_BYTES = 17
KAFKA_IN_FLIGHT_FRAMES_MAX = 5
"""Most frames that an idempotent Kafka producer has in flight to one partition."""
MEMORY_SHARE = 8
"""Divisor of a broker's memory: producers may take an eighth of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerLimits:
    """Limits of the producers remembered in one segment."""

    producers: int
    """Number of producers above which those that can no longer repeat anything are dropped."""
    idle_s: float
    """Time after the end of its stream during which a producer may still repeat frames."""
    frames: int
    """Frames remembered per producer. Invariant: not below the number of frames that the primary allows in flight, so
    that every frame that a client may still repeat finds its acknowledgement."""

    @classmethod
    def of(cls, config: BrokerConfig) -> "ProducerLimits":
        """Return the limits that a broker's settings give."""
        return cls(
            producers=config.producers_per_segment_max,
            idle_s=config.producer_idle_s,
            frames=max(config.stream_in_flight_frames_max, KAFKA_IN_FLIGHT_FRAMES_MAX),
        )

    @classmethod
    def none(cls) -> "ProducerLimits":
        """Return no limits, for a bounded log's readers; frames are limited as at the broker that allows most."""
        return cls(producers=sys.maxsize, idle_s=math.inf, frames=STREAM_IN_FLIGHT_FRAMES_MAX)


class SettledDropper(Protocol):
    """A producer table as the pool sees it."""

    def drop_settled(self, now: float) -> int:
        """Drop the producers that can no longer repeat anything, and return their number."""


class ProducerPool:
    """The producers that a broker remembers over all its segments, those it follows included.

    At the limit the pool accepts no new producers on a primary. Followers always take what their primary accepted.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._tables: dict[SettledDropper, None] = {}

    @classmethod
    def of(cls, config: BrokerConfig) -> "ProducerPool":
        """Return a pool limited by ``producers_max`` and a share of the broker's memory."""
        cost = PRODUCER_BYTES + FRAME_BYTES * config.stream_in_flight_frames_max
        return cls(min(config.producers_max, config.memory_bytes_max // MEMORY_SHARE // cost))

    def join(self, table: SettledDropper) -> None:
        """Count the producers of a table from now on."""
        self._tables[table] = None

    def leave(self, table: SettledDropper, producers: int) -> None:
        """Remove a table and its ``producers`` from the count."""
        del self._tables[table]
        self.used -= producers
        assert self.used >= 0

    def check_room(self, now: float) -> None:
        """Make room for one more producer by dropping those that can repeat nothing; else ResourceExhausted."""
        if self.used < self.limit:
            return
        for table in self._tables:
            table.drop_settled(now)
        if self.used >= self.limit:
            raise ResourceExhausted(
                f"this broker remembers {self.used:,} producers, its limit is {self.limit:,} (producers_max, and "
                "an eighth of memory_bytes_max): retry later, since producers expire producer_idle_s after their "
                "streams ended; share publishers between tasks, raise the limits, or add brokers"
            )
