"""Snapshots of a state in its own log, which make all records before the last snapshot deletable.

The records of a snapshot are taken from the state at once, and appended in parts between other records. A key that was
written since the snapshot began is left out: its value in the snapshot is old, and the newer one is above the mark.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from seaweedmq.model.config import KIB, MIB
from seaweedmq.shards.machine import Pair
from seaweedmq.shards.shard_log import ShardContents, size_of

AFTER_BYTES: Final = 16 * MIB
"""Bytes written since the last snapshot that make one due, or twice its size if that is more."""
AFTER_S: Final = 600.0
"""Seconds after which a snapshot is also due, if ``AFTER_S_SHARE`` of its size was written meanwhile. The log rolls by
age at the same interval (``partition_roll_age_s``), so that a shard with few writes does not leave a file each time."""
AFTER_S_SHARE: Final = 1 / 8
ROUND_BYTES: Final = 4 * KIB
"""Bytes that an append counts in addition to its records: the cost of reading one more frame, in bytes of large frames.
It limits loading, during which the shard answers nothing, to about 4,000 frames, not the 100,000 that would fit."""
PIECE_BYTES: Final = 256 * KIB

Source: TypeAlias = Callable[[], Iterable[Any]]


class Snapshots:
    """The schedule of a shard's snapshots, and the records to append of the current one."""

    def __init__(
        self, encode: Callable[[Any], Pair], after_bytes: int = AFTER_BYTES, round_bytes: int = ROUND_BYTES
    ) -> None:
        self._encode = encode
        self._after_bytes = after_bytes
        self._round_bytes = round_bytes
        self._written_bytes = 0
        """Bytes of other records since the last snapshot began, including ``ROUND_BYTES`` for each append."""
        self._last_bytes = 0
        """Size of the last snapshot, or the size it would have had."""
        self._began_at = 0.0
        self._mark: int | None = None
        """The offset at which the current snapshot began; None: none is under way. Nothing below it is needed once the
        whole snapshot is committed."""
        self._rest: Iterator[Any] = iter(())
        self._newer: set[bytes] = set()
        """Keys written since the current snapshot began."""
        self._done: int | None = None

    @property
    def under_way(self) -> bool:
        """Whether a snapshot has parts left to append."""
        return self._mark is not None

    def loaded(self, kept: ShardContents, now: float) -> None:
        """Note that the state was loaded from the log. ``now``: seconds of a monotonic clock."""
        self._began_at = now
        self._written_bytes = kept.read_bytes + kept.read_frames * self._round_bytes
        self._last_bytes = sum(map(size_of, kept.latest.items()))

    def begin_if_due(self, mark: int, source: Source, now: float) -> None:
        """Begin a snapshot of ``source`` if one is due. ``mark``: the offset of the next record."""
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
        """Count records that are about to be appended."""
        if pairs:
            self._written_bytes += self._round_bytes + sum(map(size_of, pairs))
        if self._mark is not None:
            self._newer.update(key for key, _ in pairs)

    def piece(self) -> list[Pair]:
        """Return the next part of the snapshot, to be appended after the noted records; empty if none is under way."""
        pairs: list[Pair] = []
        if self._mark is None:
            return pairs
        piece_bytes = 0
        for record in self._rest:
            pair = self._encode(record)
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
        """Return the mark of a finished snapshot once, then None; call it when the last part is committed."""
        done, self._done = self._done, None
        return done
