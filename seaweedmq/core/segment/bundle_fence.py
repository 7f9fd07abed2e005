"""The search for the fence of a broker's sequence, by a leader that ends it or by a broker that leaves.

The fence is an entry like any other, created where the writer's next bundle would be. The steps:

1. List the entries, and read the highest bundle. It declares the number below which all bundles were done, and the
   floor, below which bundles may be deleted. Read also what is listed from the first of the two on: a few entries.
2. If there is no fence, create it at the first free number. If the name is taken, read the entry: a bundle is passed
   over.
3. List again, with a fence that was found or created before. If it is below the floor, it was put where bundles had
   been deleted: it is void, and the search begins again. The floor of a deletion is in a bundle before the deletion
   begins, and the newest bundle stays, so a listing that begins after the fence was there shows that floor, in any
   order in which the store lists.

If an entry is deleted between its listing and its reading, the search begins again.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.bundle import EntryHeader


@dataclass(frozen=True, slots=True)
class ListEntries:
    """An action: list the numbers of all entries, then call ``FenceSearch.listed``."""


@dataclass(frozen=True, slots=True)
class ReadEntry:
    """An action: read the header at this number, then call ``FenceSearch.header_read``."""

    number: int


@dataclass(frozen=True, slots=True)
class CreateFence:
    """An action: create the fence at this number if it is free, then call ``created``, ``exists`` or ``unanswered``."""

    number: int
    floor: int


@dataclass(frozen=True, slots=True)
class FenceFound:
    """The result: no bundle at or above ``number`` was or will be acknowledged."""

    number: int
    floor: int
    """Entries from here to the fence are needed."""
    has_bundles: bool
    """Whether there is a bundle; if not, everything is in log objects."""


FenceAction: TypeAlias = ListEntries | ReadEntry | CreateFence | FenceFound


class FenceSearch:
    """The search for one fence, one action at a time."""

    def __init__(self) -> None:
        self._listed: frozenset[int] = frozenset()
        self._unread: list[int] = []
        """Listed numbers that are not read yet, in ascending order."""
        self._highest: EntryHeader | None = None
        """Header of the highest bundle of the listing; None until it is read."""
        self._listed_fences: list[int] = []
        """Fences of the listing, the highest first."""
        self._seen: set[int] = set()
        """Fences that were found or created in any step."""
        self._seen_before: frozenset[int] = frozenset()
        """Those that were there before the listing began."""
        self._creating = False

    def begin(self) -> FenceAction:
        """Begin, or begin again."""
        self._highest = None
        self._listed_fences = []
        self._seen_before = frozenset(self._seen)
        self._creating = False
        return ListEntries()

    def listed(self, numbers: Collection[int]) -> FenceAction:
        """Record the numbers of all entries, in any order."""
        self._listed = frozenset(numbers)
        self._unread = sorted(numbers)
        return self._read_next()

    def header_read(self, number: int, header: EntryHeader | None) -> FenceAction:
        """Record an entry; None if there is none, because it was deleted."""
        if header is None:
            return self.begin()
        if header.is_fence:
            self._seen.add(number)
        if self._creating:
            return self.begin() if header.is_fence else CreateFence(number + 1, self._floor)
        self._unread.pop()
        if header.is_fence:
            self._listed_fences.append(number)
        elif self._highest is None:
            self._highest = header
        return self._read_next()

    def created(self, number: int) -> FenceAction:
        """Record that the fence was created at a free number."""
        self._seen.add(number)
        return self.begin()

    def exists(self, number: int) -> FenceAction:
        """Record that the number is taken, perhaps by a fence of this search."""
        return ReadEntry(number)

    def unanswered(self, number: int) -> FenceAction:
        """Record that the object store did not answer, or reported a conflict."""
        return CreateFence(number, self._floor)

    @property
    def _floor(self) -> int:
        return 0 if self._highest is None else self._highest.floor

    def _read_next(self) -> FenceAction:
        done = 0 if self._highest is None else self._highest.done
        if self._unread and self._unread[-1] >= done:
            return ReadEntry(self._unread[-1])
        valid = [fence for fence in self._listed_fences if fence >= self._floor]
        if valid:
            if valid[0] not in self._seen_before:
                return self.begin()
            return FenceFound(valid[0], self._floor, has_bundles=self._highest is not None)
        self._creating = True
        return CreateFence(
            next(n for n in range(done, done + len(self._listed) + 1) if n not in self._listed), self._floor
        )
