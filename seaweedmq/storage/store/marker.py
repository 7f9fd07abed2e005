"""Marker of a cluster's storage, ``cluster.json``: blocking calls that read, create, replace and verify it.

A storage without its marker is not mounted, or is another folder. Verification costs one ``stat``: it reads the content
again only if the file changed.
"""

import contextlib
import errno
import math
import os
import stat
import time
from collections.abc import Iterator
from typing import TypeAlias

from seaweedmq.codec.paths import CLUSTER_DOCUMENT
from seaweedmq.codec.state.cluster import marker_document, marker_from_document
from seaweedmq.errors import NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace

READ_ATTEMPTS = 3
"""Attempts to read the marker: on a network file system, a replaced file may vanish between open and read."""
VERIFY_INTERVAL_S = 0.05
"""Seconds between two checks; a check takes 2 us, a tenth of a write of 64 KiB."""
_Stamp: TypeAlias = tuple[int, int, int, int]


def marker_missing(root: str, cluster_id: str) -> StorageFailed:
    """Return the error of a storage without its marker."""
    return StorageFailed(
        f"storage {root} has no {CLUSTER_DOCUMENT}, so it is not mounted or is another folder: mount the storage of "
        f"cluster {cluster_id} there"
    )


def marker_foreign(root: str, cluster_id: str, found: StorageMarker) -> StorageFailed:
    """Return the error of a storage with the marker of another cluster."""
    return StorageFailed(
        f"storage {root} belongs to cluster {found.cluster_id}, not to {cluster_id}: mount the storage of that cluster"
    )


def read_marker(place: DirectoryPlace) -> StorageMarker | None:
    """Read the marker; None if there is none."""
    for attempt in range(READ_ATTEMPTS):
        try:
            return marker_from_document(place.read(CLUSTER_DOCUMENT))
        except FileNotFoundError:
            if not place.exists():
                raise
            return None
        except OSError as error:
            if error.errno != errno.ESTALE or attempt == READ_ATTEMPTS - 1:
                raise
    raise AssertionError("the last attempt returns or raises")


def create_marker(place: DirectoryPlace, marker: StorageMarker) -> StorageMarker:
    """Create the marker durably unless there is one; return the marker of the root."""
    with contextlib.suppress(FileExistsError):
        place.create(CLUSTER_DOCUMENT, marker_document(marker))
    file_io.sync_directory(place.root)  # another broker may have created it without a durable name yet
    found = read_marker(place)
    if found is None:
        raise FileNotFoundError(
            errno.ENOENT, "the marker is missing right after its creation", str(place.path(CLUSTER_DOCUMENT))
        )
    return found


def replace_marker(place: DirectoryPlace, marker: StorageMarker) -> None:
    """Replace the marker of the same cluster, durably; raises StorageFailed if it is of another one."""
    found = read_marker(place)
    if found is None:
        raise marker_missing(str(place), marker.cluster_id)
    if found.cluster_id != marker.cluster_id:
        raise marker_foreign(str(place), marker.cluster_id, found)
    place.replace(CLUSTER_DOCUMENT, marker_document(marker))


class RootGuard:
    """A check that the root of a storage is that of one cluster. Blocking; any thread may call it."""

    def __init__(self, place: DirectoryPlace, cluster_id: str | None = None) -> None:
        """Create a guard; without ``cluster_id`` every check passes until :meth:`bind`."""
        self._place = place
        self._path = str(place.path(CLUSTER_DOCUMENT))
        self._cluster_id = cluster_id
        self._verified: _Stamp | None = None
        """Stamp of the marker file whose content was verified."""
        self._verified_s = -math.inf
        """Monotonic time of the last check that passed."""

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster whose marker is required; None before :meth:`bind`."""
        return self._cluster_id

    @property
    def sibling(self) -> str:
        """Name of the file that the root must hold; "" before :meth:`bind`."""
        return "" if self._cluster_id is None else CLUSTER_DOCUMENT

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on."""
        self._cluster_id, self._verified, self._verified_s = cluster_id, None, -math.inf

    def verify_often(self) -> None:
        """Verify at most once in ``VERIFY_INTERVAL_S``; an open file stays on the file system that held the marker."""
        if time.monotonic() - self._verified_s >= VERIFY_INTERVAL_S:  # noqa: TID251 - in threads, on a real disk
            self.verify()

    def verify(self) -> None:
        """Raise StorageFailed unless the root has the marker of the cluster."""
        if self._cluster_id is None:
            return
        self._verified_s = -math.inf
        try:
            found = os.stat(self._path)  # noqa: PTH116 - once per written batch: half the time of Path.stat
            stamp = found.st_dev, found.st_ino, found.st_mtime_ns, found.st_size
            if stamp == self._verified:
                self._verified_s = time.monotonic()  # noqa: TID251 - see verify_often
                return
            marker = read_marker(self._place) if stat.S_ISREG(found.st_mode) else None
        except FileNotFoundError:
            marker = None
        except OSError as error:
            raise StorageFailed(
                f"cannot read {self._path}: {error.strerror or error}; repair the storage, and brokers resume"
            ) from error
        except SeaweedMQError as error:
            raise StorageFailed(f"{self._path} is unreadable ({error}): restore it") from error
        if marker is None:
            self._verified = None
            raise marker_missing(str(self._place), self._cluster_id)
        if marker.cluster_id != self._cluster_id:
            self._verified = None
            raise marker_foreign(str(self._place), self._cluster_id, marker)
        self._verified = stamp
        self._verified_s = time.monotonic()  # noqa: TID251 - see verify_often


@contextlib.contextmanager
def guarded(guard: RootGuard) -> Iterator[None]:
    """Require the marker before and after a block of calls, even if one of them misses a file."""
    guard.verify()
    try:
        yield
    except (FileNotFoundError, NotFound):
        guard.verify()
        raise
    guard.verify()
