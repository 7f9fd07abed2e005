"""Snapshots of a state in the log that it came from: what lies before the last one is not needed any more.

The records of one are taken from the state at once, and appended in pieces, between what happens meanwhile. A key that
was written since then is left out: what the snapshot says of it is old, and what is newer lies behind the mark, too.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeAlias

from seaweedmq.codec.kafka.group_records import encode_record
from seaweedmq.kafka.shard_log import Pair, ShardContents, size_of
from seaweedmq.model.config import KIB, MIB
from seaweedmq.model.kafka_groups import ShardRecord

AFTER_BYTES: Final = 16 * MIB
"""There is one when so much was written since the last one, or twice what it took, if that is more."""
AFTER_S: Final = 600.0
"""There is one after so long, too, if an eighth of what it takes was written meanwhile: as often as the log is rolled
by its age (``partition_roll_age_s``), so that a group of few commits does not leave a file each time."""
AFTER_S_SHARE: Final = 1 / 8
ROUND_BYTES: Final = 4 * KIB
"""What an append counts beside its records: reading a frame takes as long as that of so many bytes in large frames. So
there are about 4,000 frames to read at most while nobody coordinates, not the 100,000 that would fit."""
PIECE_BYTES: Final = 256 * KIB

Source: TypeAlias = Callable[[], Iterable[ShardRecord]]


class Snapshots:
    """When there is one, and what goes into the log next of it."""

    def __init__(self, after_bytes: int = AFTER_BYTES, round_bytes: int = ROUND_BYTES) -> None:
        self._after_bytes = after_bytes
        self._round_bytes = round_bytes
        self._written_bytes = 0
        """Of other records, since the last one began, and what their appends count."""
        self._last_bytes = 0
        """What the last one took, or would have taken."""
        self._began_at = 0.0
        self._mark: int | None = None
        """Of the one that is under way: nothing below is needed once all of it is committed."""
        self._rest: Iterator[ShardRecord] = iter(())
        self._newer: set[bytes] = set()
        """Keys that were written since it began."""
        self._done: int | None = None

    @property
    def under_way(self) -> bool:
        """Whether there are pieces left to append."""
        return self._mark is not None

    def loaded(self, kept: ShardContents, now: float) -> None:
        """The state was read from what the log holds. ``now``: seconds on any clock that only rises."""
        self._began_at = now
        self._written_bytes = kept.read_bytes + kept.read_frames * self._round_bytes
        self._last_bytes = sum(map(size_of, kept.latest.items()))

    def begin_if_due(self, mark: int, source: Source, now: float) -> None:
        """Take the records of the state, if it is time to. ``mark``: where the next record will be."""
        if self._mark is None and self._is_due(now):
            self._mark = mark
            self._began_at = now
            self._rest = iter(list(source()))
            self._newer.clear()
            self._written_bytes = self._last_bytes = 0

    def _is_due(self, now: float) -> bool:
        if self._written_bytes >= max(self._after_bytes, 2 * self._last_bytes):
            return True
        is_worth_it = self._written_bytes > self._last_bytes * AFTER_S_SHARE
        return is_worth_it and now - self._began_at >= AFTER_S

    def note(self, pairs: Sequence[Pair]) -> None:
        """These are appended now, if there are any."""
        if pairs:
            self._written_bytes += self._round_bytes + sum(map(size_of, pairs))
        if self._mark is not None:
            self._newer.update(key for key, _ in pairs)

    def piece(self) -> list[Pair]:
        """What of it is to be appended next, behind what was noted; nothing if none is under way."""
        pairs: list[Pair] = []
        if self._mark is None:
            return pairs
        piece_bytes = 0
        for record in self._rest:
            pair = encode_record(record)
            if pair[0] not in self._newer:
                pairs.append(pair)
                piece_bytes += size_of(pair)
                if piece_bytes >= PIECE_BYTES:
                    break
        else:
            self._done, self._mark = self._mark, None
            self._newer.clear()
        self._last_bytes += piece_bytes
        return pairs

    def take_mark(self) -> int | None:
        """Where the snapshot began whose last piece was given before and is committed by now; once."""
        done, self._done = self._done, None
        return done
