"""The metadata store with its transactions, leases and watches. Adapter: ``coordination.etcd``."""

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Entry:
    """A key with its value and etcd revisions."""

    key: str
    value: bytes
    create_revision: int
    mod_revision: int
    lease: int = 0
    """Lease that the key ends with; 0 if it stays."""


@dataclass(frozen=True, slots=True)
class Compare:
    """A condition on a key's creation or modification revision, where 0 means that the key does not exist.

    ``lease`` requires that the key exists and ends with that lease; 0 requires that it has none, or does not exist.
    """

    key: str
    create_revision: int | None = None
    mod_revision: int | None = None
    lease: int | None = None


@dataclass(frozen=True, slots=True)
class Put:
    """A write of a key, with a lease that it ends with, or 0."""

    key: str
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of a key, or of all keys that begin with it if ``prefix``."""

    key: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All entries below a prefix at one revision."""

    revision: int
    entries: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """Puts and deletions of one or more revisions, in order; ``revision`` is the last."""

    revision: int
    puts: tuple[Entry, ...]
    deletes: tuple[str, ...]


class MetaStore(Protocol):
    """A strongly consistent key-value store with leases and watches: etcd.

    Every method raises Unavailable if the store cannot be reached within its deadline, or does not answer properly. A
    transaction that raised it may or may not have happened. Every method raises ResourceExhausted if the store is at a
    limit, such as its space quota: nothing happened then. No rejection may end a broker.
    """

    async def get(self, key: str) -> Entry | None:
        """Return a key's entry, None if the key does not exist."""

    async def list(self, prefix: str) -> Snapshot:
        """Return all entries below a prefix at one revision."""

    async def transact(self, compares: Sequence[Compare], then: Sequence[Put | Delete]) -> int | None:
        """Do all of ``then`` if all compares hold; return the new revision, or None if one does not hold."""

    def watch(self, prefix: str, from_revision: int) -> AsyncIterator[Changes]:
        """Yield the changes at and after ``from_revision``, without end.

        Raises:
            OutOfRange: If the revision is compacted, or above the next one, as after a restore of the store: list
                again.
            Unavailable: If the watch is lost.
        """

    async def grant_lease(self, ttl_s: float) -> int:
        """Create a lease that lasts ``ttl_s`` seconds without renewal, and return its id."""

    async def renew_lease(self, lease: int) -> float:
        """Renew a lease, and return the seconds that it now lasts; 0 if it has ended."""

    async def revoke_lease(self, lease: int) -> None:
        """End a lease, and delete its keys."""

    async def close(self) -> None:
        """Close the connection."""
