"""Marker of a cluster, ``cluster.json``, at the prefix of an object store, and the clock of the store.

A prefix cannot be unmounted, as a directory can. So the marker is verified before a call, and at most once in
``VERIFY_INTERVAL_S``: that finds a prefix that was emptied, or given to another cluster.
"""

import asyncio
import contextlib
import math

from seaweedmq.codec.paths import CLUSTER_DOCUMENT
from seaweedmq.codec.state.cluster import marker_document, marker_from_document
from seaweedmq.errors import AlreadyExists, Conflict, NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.cluster import StorageMarker
from seaweedmq.ports import ObjectContent, Objects
from seaweedmq.runtime.retrying import after_attempts, retrying
from seaweedmq.storage.file_io import unique_suffix
from seaweedmq.storage.object_place import PROBES

VERIFY_INTERVAL_S = 10.0
"""Seconds between two checks of the marker: a busy broker pays 0.3 cents a day for them."""
REPLACE_ATTEMPTS = 5
"""Attempts to replace the marker; each failed one means that another process did."""


class ObjectRoot:
    """The root of one storage. All methods raise StorageFailed. Belongs to the event loop."""

    def __init__(self, objects: Objects, *, verify_interval_s: float = VERIFY_INTERVAL_S) -> None:
        """Create a root; without :meth:`bind` each check passes."""
        self._objects = objects
        self._interval_s = verify_interval_s
        self._cluster_id: str | None = None
        self._e_tag = ""
        """Version of the marker whose content was verified; "" before that."""
        self._verified_s = -math.inf
        """Time of the loop at which a check that passed began."""
        self._verifying = asyncio.Lock()

    @property
    def cluster_id(self) -> str | None:
        """Id of the cluster whose marker is required; None before :meth:`bind`."""
        return self._cluster_id

    def bind(self, cluster_id: str) -> None:
        """Require the marker of this cluster from now on."""
        self._cluster_id, self._e_tag, self._verified_s = cluster_id, "", -math.inf

    async def verify_often(self) -> None:
        """Verify the marker unless that was done within the interval."""
        if self._cluster_id is None or self._is_recent():
            return
        async with self._verifying:
            if not self._is_recent():
                await self.verify()

    async def verify(self) -> None:
        """Raise StorageFailed unless the root has the marker of the bound cluster, or no cluster is bound."""
        if self._cluster_id is None:
            return
        began_s, self._verified_s = asyncio.get_running_loop().time(), -math.inf
        try:
            if self._e_tag:
                found = await self._objects.get_changed(CLUSTER_DOCUMENT, e_tag=self._e_tag)
            else:
                found = await self._objects.get(CLUSTER_DOCUMENT)
        except NotFound:
            self._e_tag = ""
            raise self._missing(self._cluster_id) from None
        if found is not None:
            self._e_tag = ""
            try:
                marker = _marker(found)
            except SeaweedMQError as error:
                raise StorageFailed(
                    f"{self._objects.uri}/{CLUSTER_DOCUMENT} is unreadable ({error}): restore it"
                ) from error
            if marker.cluster_id != self._cluster_id:
                raise self._foreign(self._cluster_id, marker)
            self._e_tag = found.state.e_tag
        self._verified_s = began_s

    def _is_recent(self) -> bool:
        return asyncio.get_running_loop().time() - self._verified_s < self._interval_s

    async def read_marker(self) -> StorageMarker | None:
        """Return the marker; None if there is none. Raises Corrupt, Unsupported."""
        try:
            return _marker(await self._objects.get(CLUSTER_DOCUMENT))
        except NotFound:
            return None

    async def create_marker(self, marker: StorageMarker) -> StorageMarker:
        """Create the marker unless there is one; return the marker of the root."""
        with contextlib.suppress(AlreadyExists):
            await self._objects.create(CLUSTER_DOCUMENT, [marker_document(marker)])
            return marker
        found = await self.read_marker()
        if found is None:
            raise StorageFailed(
                f"{self._objects.uri}/{CLUSTER_DOCUMENT} disappeared after its creation: stop the program that deletes "
                "objects in the storage"
            )
        return found

    async def replace_marker(self, marker: StorageMarker) -> None:
        """Replace the marker of the same cluster, unless another process stored a later one meanwhile."""
        attempts = retrying(lambda _: 0.0, on=Conflict, stop=after_attempts(REPLACE_ATTEMPTS))
        try:
            await attempts(self._replace_marker, marker)
        except Conflict as error:
            raise StorageFailed(
                f"{self._objects.uri}/{CLUSTER_DOCUMENT} was not replaced: other brokers replaced it "
                f"{REPLACE_ATTEMPTS} times meanwhile; retry"
            ) from error

    async def _replace_marker(self, marker: StorageMarker) -> None:
        try:
            stored = await self._objects.get(CLUSTER_DOCUMENT)
            found = _marker(stored)
            if found.cluster_id != marker.cluster_id:
                raise self._foreign(marker.cluster_id, found)
            if found.position < marker.position or found.format != marker.format:
                await self._objects.replace(CLUSTER_DOCUMENT, [marker_document(marker)], e_tag=stored.state.e_tag)
        except NotFound:
            raise self._missing(marker.cluster_id) from None

    async def now_us(self) -> int:
        """Return the time of the store's clock, by a new object, microseconds since 1970 UTC."""
        key = f"{PROBES}/{unique_suffix()}"
        await self._objects.put(key, [b"\0"])
        try:
            return (await self._objects.head(key)).modified_us
        except NotFound:
            raise StorageFailed(
                f"{self._objects.uri} does not show an object that it stored: use a store with consistent reads"
            ) from None
        finally:
            await self._objects.delete([key])

    def _missing(self, cluster_id: str) -> StorageFailed:
        return StorageFailed(
            f"storage {self._objects.uri} has no {CLUSTER_DOCUMENT}, so it was emptied or is another prefix: give the "
            f"storage of cluster {cluster_id}"
        )

    def _foreign(self, cluster_id: str, found: StorageMarker) -> StorageFailed:
        return StorageFailed(
            f"storage {self._objects.uri} belongs to cluster {found.cluster_id}, not to {cluster_id}: give the storage "
            "of that cluster, or another prefix"
        )


def _marker(found: ObjectContent) -> StorageMarker:
    return marker_from_document(bytes(found.content))
