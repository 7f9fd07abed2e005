"""The ledger of a writer's bundles: runs that only bundles hold, rolls, checkpoints, the floor, and deletions.

Bundles serve recovery. Readers get log objects: a **roll** writes the bundled frames of one segment into one. A run is
**pinned** until then. The **floor** is the number below which a recovery needs no entry: it is above no pinned run and
above no full checkpoint that is not done. Each bundle declares the floor of its cut, and entries below a floor may be
deleted once a bundle that declares it is done. A leader that lists the entries then finds that floor in the highest
one, so a deleted number is never taken for the end of the sequence.
"""

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from seaweedmq.model.bundle import CHECKPOINT_EVERY, BundleRun, BundleSection, EntryKind
from seaweedmq.model.config import MIB
from seaweedmq.model.segment import ReplicaKey


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerLimits:
    """Limits of rolls and checkpoints."""

    roll_bytes: int = 16 * MIB
    """Pinned bytes of a segment that are rolled."""
    roll_age_s: float = 600.0
    """Age of a pinned run at which its segment is rolled."""
    pinned_bytes_max: int = 256 * MIB
    """Pinned bytes of all segments, half the log budget; beyond it the largest are rolled first."""
    checkpoint_every: int = CHECKPOINT_EVERY
    full_age_s: float = 600.0
    """Age of the last full checkpoint at which the next bundle is one."""


DEFAULT_LIMITS: Final = LedgerLimits()


class _Pin(NamedTuple):
    number: int
    run: BundleRun
    since_s: float


@dataclass(frozen=True, slots=True)
class Roll:
    """An action: write these frames of a segment into one log object, then call ``BundleLedger.rolled``."""

    key: ReplicaKey
    base_offset: int
    end_offset: int
    length: int
    """Bytes of the frames."""


class BundleLedger:
    """The bundles of one writer, from entry 0 on. Times are seconds of one clock that never steps back."""

    def __init__(self, limits: LedgerLimits = DEFAULT_LIMITS, *, now: float = 0.0) -> None:
        self._limits = limits
        self.checkpoint = 0
        """Number of the last full checkpoint that was cut."""
        self.pinned_bytes = 0
        self._pins: dict[ReplicaKey, deque[_Pin]] = {}
        self._sizes: dict[ReplicaKey, int] = {}
        """Pinned bytes of each segment."""
        self._pinned: dict[int, int] = {}
        """Pinned runs of each bundle, the lowest number first."""
        self._rolling: dict[ReplicaKey, int] = {}
        """End of the roll that is running."""
        self._ends: dict[ReplicaKey, int] = {}
        """End of each segment in bundles and log objects, as of the last cut."""
        self._changed: set[ReplicaKey] = set()
        """Segments with frames since the previous checkpoint."""
        self._previous = 0
        """Number of the previous checkpoint of either kind."""
        self._checkpoints = 0
        """Checkpoints since the last full one."""
        self._full_s = now
        self._fulls: deque[int] = deque([0])
        """The last full checkpoint that is done, and those that are not done yet."""
        self._floors: deque[tuple[int, int]] = deque()
        """Number and declared floor of each bundle that is not done."""
        self._done_below = 1
        self._deleted_below = 0
        self._deletable_below = 0

    @property
    def floor(self) -> int:
        """The floor that the next bundle declares."""
        return min(self._fulls[0], next(iter(self._pinned), self._fulls[0]))

    def next_kind(self, number: int, now: float) -> EntryKind:
        """Return the kind of the next bundle. Idle brokers put none, so an old full checkpoint alone costs nothing."""
        every = self._limits.checkpoint_every
        is_turn = number % every == 0
        if now - self._full_s >= self._limits.full_age_s or (is_turn and self._checkpoints + 1 >= every):
            return EntryKind.FULL_CHECKPOINT
        return EntryKind.CHECKPOINT if is_turn else EntryKind.BUNDLE

    def carried(self, kind: EntryKind) -> tuple[BundleSection, ...]:
        """Return the sections that the next bundle carries: pinned runs, of all bundles if it is a full checkpoint."""
        if not kind.is_checkpoint:
            return ()
        above = -1 if kind is EntryKind.FULL_CHECKPOINT else self._previous
        runs: dict[int, list[BundleRun]] = {}
        for pins in self._pins.values():
            for pin in pins:
                if pin.number > above:
                    runs.setdefault(pin.number, []).append(replace(pin.run, frames=()))
        return tuple(BundleSection(number=number, runs=tuple(runs[number])) for number in sorted(runs))

    def tail_ends(self, kind: EntryKind, runs: Collection[BundleRun]) -> dict[ReplicaKey, int]:
        """Return the segments whose tails the next bundle has, with their ends, which include its own ``runs``.

        A bundle that is not a checkpoint has those of segments whose runs do not continue earlier bundles: new ones,
        and those that this broker follows and bundles only now and then.
        """
        own = {run.key: run.end_offset for run in runs}
        if not kind.is_checkpoint:
            bases = {run.key: run.base_offset for run in reversed(list(runs))}
            return {key: own[key] for key, base in bases.items() if self._ends.get(key) != base}
        keys = self._ends if kind is EntryKind.FULL_CHECKPOINT else self._changed
        return {key: self._ends[key] for key in keys} | own

    def cut(self, number: int, kind: EntryKind, runs: Collection[BundleRun], floor: int, now: float) -> None:
        """Record a bundle, with the positions of its runs, that declares ``floor``."""
        assert floor <= self.floor, f"bundle {number} declares floor {floor}, above {self.floor}"
        for run in runs:
            self._ends[run.key] = run.end_offset
            self._changed.add(run.key)
            if not run.is_reference:
                self._pins.setdefault(run.key, deque()).append(_Pin(number, run, now))
                self._pinned[number] = self._pinned.get(number, 0) + 1
                self._sizes[run.key] = self._sizes.get(run.key, 0) + run.length
                self.pinned_bytes += run.length
        self._floors.append((number, floor))
        if kind.is_checkpoint:
            self._previous = number
            self._checkpoints += 1
            self._changed.clear()
        if kind is EntryKind.FULL_CHECKPOINT:
            self.checkpoint = number
            self._checkpoints = 0
            self._full_s = now
            self._fulls.append(number)

    def done(self, below: int) -> None:
        """Record that all bundles below this number are done."""
        self._done_below = below
        while len(self._fulls) > 1 and self._fulls[1] < below:
            self._fulls.popleft()
        while self._floors and self._floors[0][0] < below:
            self._deletable_below = self._floors.popleft()[1]

    def take_deletable(self) -> range:
        """Return the numbers of the bundles that may be deleted now, each once. The newest is never among them."""
        numbers = range(self._deleted_below, self._deletable_below)
        self._deleted_below = self._deletable_below
        return numbers

    def rolls(self, now: float, sealed: Collection[ReplicaKey] = ()) -> list[Roll]:
        """Return the rolls that are due, of bundles that are done; ``sealed`` segments are rolled at once."""
        due = []
        for key, pins in self._pins.items():
            is_old = key in sealed or now >= pins[0].since_s + self._limits.roll_age_s
            if not is_old and self._sizes[key] < self._limits.roll_bytes:
                continue  # thousands of segments are checked after each bundle
            roll = self._roll(key)
            if roll and (is_old or roll.length >= self._limits.roll_bytes):
                due.append(roll)
        running = sum(self._rolling_bytes(key) for key in self._rolling)
        excess = self.pinned_bytes - running - sum(roll.length for roll in due) - self._limits.pinned_bytes_max
        if excess > 0:
            chosen = {roll.key for roll in due}
            others = [roll for key in self._pins if key not in chosen and (roll := self._roll(key))]
            for roll in sorted(others, key=lambda roll: roll.length, reverse=True):
                if excess <= 0:
                    break
                due.append(roll)
                excess -= roll.length
        for roll in due:
            self._rolling[roll.key] = roll.end_offset
        return due

    def rolled(self, roll: Roll) -> None:
        """Record that the log object of a roll exists."""
        self._rolling.pop(roll.key, None)
        self.release(roll.key, roll.end_offset)

    def release(self, key: ReplicaKey, below: int) -> None:
        """Unpin the runs of a segment below an offset, which no longer need the bundles of this broker.

        A follower calls it when the primary has flushed them.
        """
        pins = self._pins.get(key)
        while pins and pins[0].run.end_offset <= below:
            pin = pins.popleft()
            self._sizes[key] -= pin.run.length
            self.pinned_bytes -= pin.run.length
            self._pinned[pin.number] -= 1
            if not self._pinned[pin.number]:
                del self._pinned[pin.number]
        if pins is not None and not pins:
            del self._pins[key], self._sizes[key]

    def largest(self, bytes_wanted: int) -> list[ReplicaKey]:
        """Return the segments with the most pinned bytes, as many as have ``bytes_wanted`` together."""
        chosen = []
        for key, size in sorted(self._sizes.items(), key=lambda item: item[1], reverse=True):
            if bytes_wanted <= 0:
                break
            chosen.append(key)
            bytes_wanted -= size
        return chosen

    def is_pinned(self, key: ReplicaKey) -> bool:
        """Whether bundles have frames of a segment that no log object holds."""
        return key in self._pins

    def is_pinned_below(self, key: ReplicaKey, offset: int) -> bool:
        """Whether bundles have frames of a segment below an offset that no log object holds."""
        pins = self._pins.get(key)
        return pins is not None and pins[0].run.base_offset < offset

    def forget(self, key: ReplicaKey) -> None:
        """Leave a segment out of later checkpoints: it is sealed, and all of its frames are in log objects.

        Requires that nothing of the segment is pinned.
        """
        assert key not in self._pins, f"{key} has frames that no log object holds"
        self._ends.pop(key, None)
        self._changed.discard(key)

    def _roll(self, key: ReplicaKey) -> Roll | None:
        if key in self._rolling:
            return None
        runs = [pin.run for pin in self._done_pins(key)]
        if not runs:
            return None
        return Roll(key, runs[0].base_offset, runs[-1].end_offset, sum(run.length for run in runs))

    def _done_pins(self, key: ReplicaKey) -> Iterator[_Pin]:
        """Yield contiguous pins: a reference between two of them ends the first roll."""
        end: int | None = None
        for pin in self._pins[key]:
            if pin.number >= self._done_below or end not in (None, pin.run.base_offset):
                return
            end = pin.run.end_offset
            yield pin

    def _rolling_bytes(self, key: ReplicaKey) -> int:
        end = self._rolling[key]
        return sum(pin.run.length for pin in self._pins.get(key, ()) if pin.run.end_offset <= end)
