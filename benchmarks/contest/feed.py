"""Records to publish, of one size, at full speed or by a schedule."""

import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

POOL_RECORDS = 50_000
"""Minimum number of distinct values: more than the processor's caches hold together with copies of the values."""
KEYS = 10_000
CHUNK_RECORDS = 1_000
"""Records between two reads of the clock, and in one pipeline of a client with pipelines."""
STAMP_BYTES = 8
SLOT_S = 0.001


@dataclass(frozen=True, slots=True)
class Chunk:
    """Random values and as many keys of 16 B, which publishers without keys ignore."""

    values: list[bytes]
    keys: list[bytes]


class Feed:
    """Yield chunks until ``seconds`` after the first request, at least one; ``count`` is the number of records."""

    def __init__(self, record_bytes: int, seconds: float, chunk_records: int = CHUNK_RECORDS) -> None:
        rng = random.Random(1)
        self.chunks = [
            Chunk(
                [rng.randbytes(record_bytes) for _ in range(chunk_records)],
                [b"key-%012d" % rng.randrange(KEYS) for _ in range(chunk_records)],
            )
            for _ in range(-(-POOL_RECORDS // chunk_records))
        ]
        self.count = 0
        self._seconds = seconds

    def __iter__(self) -> Iterator[Chunk]:
        end = time.perf_counter() + self._seconds
        for chunk in itertools.cycle(self.chunks):
            self.count += len(chunk.values)
            yield chunk
            if time.perf_counter() >= end:
                return


@dataclass(slots=True)
class Schedule:
    """Records that are due at a steady rate, in slots of a millisecond or, if that is longer, of a record.

    It is an open loop: a delayed publisher finds several slots overdue and gets their records together. Every record
    begins with the time at which it was due, in nanoseconds of the monotonic clock that all processes share.
    """

    records_per_s: float
    record_bytes: int
    seconds: float
    late_ns: list[int] = field(default_factory=list)
    """Delay of every slot, from due to passed on."""

    @property
    def count(self) -> int:
        """Number of records."""
        return self._slots * self._slot_records

    def __iter__(self) -> Iterator[list[bytes]]:
        """Sleep until records are due, and yield all of them, at most a chunk."""
        records, slot_ns = self._slot_records, self._slot_records * 1e9 / self.records_per_s
        padding = bytes(self.record_bytes - STAMP_BYTES)
        now = time.monotonic_ns
        began, slot = now(), 0
        while slot < self._slots:
            time.sleep(max(0.0, (began + slot * slot_ns - now()) / 1e9))
            due_now: list[bytes] = []
            woke = now()
            while slot < self._slots and (due := began + int(slot * slot_ns)) <= woke and len(due_now) < CHUNK_RECORDS:
                due_now += [due.to_bytes(STAMP_BYTES, "little") + padding] * records
                self.late_ns.append(woke - due)
                slot += 1
            yield due_now

    @property
    def _slot_records(self) -> int:
        return max(1, round(self.records_per_s * SLOT_S))

    @property
    def _slots(self) -> int:
        return round(self.seconds * self.records_per_s / self._slot_records)


def due_ns(record: bytes) -> int:
    """Return the time at which a scheduled record was due."""
    return int.from_bytes(record[:STAMP_BYTES], "little")
