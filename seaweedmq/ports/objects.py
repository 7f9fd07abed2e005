"""An object store below one prefix, as everything that keeps files in a bucket uses it. Adapter: ``storage.objects``.

Two properties of the store carry all correctness: an atomic create-if-absent, and reads that see every completed
write. The order of listings, clocks and renames carry none.

A request may be retried, and a retried one may be applied late, after its caller died. So each method names what its
errors leave open. Keys are relative to the prefix: segments joined by ``/``, none of them empty, ``.`` or ``..``.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

Buffers: TypeAlias = Sequence[bytes | memoryview]
"""The content of an object as one-dimensional buffers of bytes, which a caller need not join."""

TIMEOUT_S = 30.0
"""Default deadline of a request with all of its retries, seconds.

A retry begins when there was no answer for a third of it. Callers give more to large objects.
"""
PART_BYTES = 8 * 1024 * 1024
"""Default size of the parts of an object that is written in parts."""


@dataclass(frozen=True, slots=True)
class ObjectState:
    """An object without its content."""

    key: str
    size_bytes: int
    e_tag: str
    """Version of the content for :meth:`Objects.replace`, opaque; two versions of a key differ."""
    modified_us: int
    """Time of the write by the store's clock, microseconds since 1970 UTC; stores round it to seconds."""


@dataclass(frozen=True, slots=True)
class ObjectContent:
    """An object with its content, both of one version."""

    state: ObjectState
    content: memoryview
    """Read-only bytes."""


@dataclass(frozen=True, slots=True)
class ObjectFolder:
    """The content of one folder, both parts sorted."""

    objects: Sequence[ObjectState]
    folders: Sequence[str]
    """Keys of the folders in it, without a slash at the end. A folder exists while an object is below it."""


class ObjectWriter(Protocol):
    """An object that is written in parts and appears as a whole at :meth:`close`, over any earlier one.

    All methods raise StorageFailed; the writer is then useless. A writer that is dropped without ``close`` leaves its
    parts in the store, invisible, until a lifecycle rule of the bucket removes them.
    """

    async def write(self, chunk: bytes | memoryview) -> None:
        """Append bytes; return when they may be reused, and at most a few parts wait for the store."""

    async def close(self) -> None:
        """Complete the object; on return it is stored."""


class Objects(Protocol):
    """The objects below one prefix of a bucket.

    All methods raise StorageFailed with the object, the reason and the remedy if the store rejects a request or does
    not answer within ``timeout_s``. Then a request that writes may have been applied, or may be applied later. They
    raise InvalidArgument for a key that breaks the rule.

    One instance belongs to one event loop. Threads take ``storage.objects.blocking.BlockingObjects``.
    """

    @property
    def uri(self) -> str:
        """Location of the prefix, for messages and for commands; without secrets."""

    async def create(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        """Create an object atomically unless the key is taken, and return its e_tag.

        Raises:
            AlreadyExists: If the key is taken, possibly by this very call: an attempt whose answer was lost, or that
                the store applied late. Callers that must know compare the content, or a nonce in it.
        """

    async def put(self, key: str, content: Buffers, *, timeout_s: float = TIMEOUT_S) -> str:
        """Create or replace an object atomically, and return its e_tag.

        A retry may be applied late, over a newer object: for keys with one content, or of one writer that waits.
        """

    async def replace(self, key: str, content: Buffers, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> str:
        """Replace the version ``e_tag`` of an object atomically, and return the new e_tag.

        Raises:
            Conflict: If the object has another version, possibly that of this very call, see :meth:`create`; or if it
                does not exist, which Azure does not tell apart.
        """

    async def get(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectContent:
        """Return a whole object, or raise NotFound."""

    async def get_changed(self, key: str, *, e_tag: str, timeout_s: float = TIMEOUT_S) -> ObjectContent | None:
        """Return a whole object unless it still has the version ``e_tag``; raise NotFound if there is none."""

    async def get_range(self, key: str, start: int, end: int, *, timeout_s: float = TIMEOUT_S) -> memoryview:
        """Return the bytes from ``start`` up to ``end``, fewer or none beyond the end, or raise NotFound."""

    async def head(self, key: str, *, timeout_s: float = TIMEOUT_S) -> ObjectState:
        """Return the state of an object, or raise NotFound."""

    def list(
        self, folder: str = "", *, after: str = "", timeout_s: float = TIMEOUT_S
    ) -> AsyncIterator[Sequence[ObjectState]]:
        """Return pages of the objects at any depth below a folder whose keys are greater than ``after``.

        Pages and objects come in any order, each object once; what is written or deleted meanwhile may be missing. Each
        page has the whole ``timeout_s``. A folder without objects has no pages.
        """

    async def list_folder(self, folder: str = "", *, timeout_s: float = TIMEOUT_S) -> ObjectFolder:
        """Return the objects and folders directly in a folder, and nothing for one that does not exist."""

    async def delete(self, keys: Collection[str], *, timeout_s: float = TIMEOUT_S) -> None:
        """Delete objects in any order; missing ones are ignored. ``timeout_s`` is for each thousand of them."""

    def open_writer(self, key: str, *, part_bytes: int = PART_BYTES, timeout_s: float = TIMEOUT_S) -> ObjectWriter:
        """Begin an object that is written in parts, of at least 5 MiB each; ``timeout_s`` is for each call."""

    async def sign(self, method: Literal["GET", "PUT"], key: str, *, expires_s: float) -> str:
        """Return a URL by which anyone may read or write the object for some seconds: a secret, never logged."""
