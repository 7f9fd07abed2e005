"""Identity of a cluster, as its storage and its etcd both keep it.

Both name the same cluster, so a wrong mount, a lost etcd and a restored etcd are recognized before a broker serves.
"""

from dataclasses import dataclass
from typing import Final

STORAGE_FORMAT: Final = 1
"""Layout of the storage that this build reads and writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The identity that etcd keeps."""

    cluster_id: str
    generation: int
    """Number of recoveries of the cluster's etcd: its revisions begin again after each one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageMarker:
    """The identity that the root of the storage keeps, with the newest state of etcd that the storage has seen."""

    cluster_id: str
    format: int
    generation: int
    etcd_revision: int
    """Revision of etcd in this generation; etcd has been at least this far."""

    @property
    def identity(self) -> ClusterIdentity:
        """The part that etcd keeps as well."""
        return ClusterIdentity(cluster_id=self.cluster_id, generation=self.generation)

    @property
    def position(self) -> tuple[int, int]:
        """Generation and revision, which only grow in this order."""
        return self.generation, self.etcd_revision
