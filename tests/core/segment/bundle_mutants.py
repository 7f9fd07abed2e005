"""Broken variants of the rules for bundles, each of which loses or doubles acknowledged frames in some history.

``python -m tests.core.segment.bundle_mutants`` prints the first seeds that show each.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from seaweedmq.core.segment.bundle_fence import CreateFence, FenceAction, FenceFound, FenceSearch
from seaweedmq.core.segment.bundle_ledger import BundleLedger
from seaweedmq.core.segment.bundle_puts import BundlePuts, PutAction, PutAnswer, RaiseDone
from seaweedmq.core.segment.bundle_recovery import DeleteEntries, LeftoverAction, Leftovers
from seaweedmq.errors import Corrupt
from seaweedmq.model.bundle import BundleRun, EntryKind
from tests.core.segment.bundle_model import Broken, run


class ExistsIsSuccess(BundlePuts):
    """Takes a taken name for its own bundle."""

    def answered(self, number: int, answer: PutAnswer, now: float) -> Sequence[PutAction]:
        return super().answered(number, PutAnswer.CREATED if answer is PutAnswer.EXISTS else answer, now)


class OutOfOrder(BundlePuts):
    """Acknowledges a bundle before those below it are done."""

    def _done(self, attempt: Any) -> Sequence[PutAction]:
        super()._done(attempt)
        number = max(number + 1 for number in range(self._next_number) if self._is_done(number))
        return (RaiseDone(number),)

    def _is_done(self, number: int) -> bool:
        attempt = self._attempts.get(number)
        return number < self.done_below if attempt is None else attempt.is_done


class BehindTheLast(FenceSearch):
    """Puts the fence behind the last listed entry instead of the first free number."""

    def _read_next(self) -> FenceAction:
        action = super()._read_next()
        return (
            CreateFence(max(self._listed, default=-1) + 1, self._floor) if isinstance(action, CreateFence) else action
        )


class NoSecondLook(FenceSearch):
    """Takes the fence that it created for valid."""

    def created(self, number: int) -> FenceAction:
        return FenceFound(number, self._floor, has_bundles=True)


class DeletesEarly(BundleLedger):
    """Deletes before a bundle that declares the floor is done."""

    def cut(self, number: int, kind: EntryKind, runs: Collection[BundleRun], floor: int, now: float) -> None:
        super().cut(number, kind, runs, floor, now)
        self._deletable_below = max(self._deletable_below, floor)


class FloorAboveCheckpoint(BundleLedger):
    """Raises the floor to a full checkpoint that is not done."""

    @property
    def floor(self) -> int:
        return min(self.checkpoint, next(iter(self._pinned), self.checkpoint))


class FloorAbovePins(BundleLedger):
    """Raises the floor above bundles whose frames are in no log object."""

    @property
    def floor(self) -> int:
        return self._fulls[0]


class LogsAfterDeletion(Leftovers):
    """Deletes a dead broker's entries before the log objects exist."""

    def begin(self) -> Sequence[LeftoverAction]:
        return (DeleteEntries(), *self._logs)


class Mutant(NamedTuple):
    """A broken variant, and seeds of histories that show it."""

    broken: dict[str, Any]
    seeds: tuple[int, ...]


MUTANTS: dict[str, Mutant] = {
    "no condition": Mutant({"conditional": False}, (3, 9)),
    "exists is success": Mutant({"make_puts": ExistsIsSuccess}, (15, 16)),
    "acknowledged out of order": Mutant({"make_puts": OutOfOrder}, (0, 14)),
    "fence behind the last": Mutant({"make_search": BehindTheLast}, (2, 5)),
    "no second look": Mutant({"make_search": NoSecondLook}, (206, 311)),
    "deletes before the floor is done": Mutant({"make_ledger": DeletesEarly}, (100,)),
    "fence collected": Mutant({"collects_fences": True}, (28, 52)),
    "floor above a checkpoint that is not done": Mutant({"make_ledger": FloorAboveCheckpoint}, (32, 33)),
    "floor above pinned runs": Mutant({"make_ledger": FloorAbovePins}, (8, 40)),
    "leftovers deleted before logs": Mutant({"make_leftovers": LogsAfterDeletion}, (19, 48)),
}
SEEDS_MAX = 400


def found_by(broken: dict[str, Any], wanted: int) -> list[int]:
    """Return the first seeds that show a broken variant."""
    found: list[int] = []
    for seed in range(SEEDS_MAX):
        try:
            run(seed, **broken)
        except (Broken, Corrupt) as error:
            found.append(seed)
            print(f"  seed {seed}: {error}")
            if len(found) == wanted:
                break
    return found


if __name__ == "__main__":
    for name, mutant in MUTANTS.items():
        print(f"{name}: {found_by(mutant.broken, wanted=2)}", flush=True)
