"""Identity of a cluster, as recorded in both its storage and its etcd.

Both name the same cluster, so a broker detects a wrong mount, a lost etcd and a restored etcd before it serves.
"""

from dataclasses import dataclass
from typing import Final

STORAGE_FORMAT: Final = 1
"""Layout of the storage that this build reads and writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The identity in etcd."""

    cluster_id: str
    generation: int
    """Number of recoveries of the cluster's etcd: its revisions begin again after each one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageMarker:
    """The identity in the root of the storage, with the newest state of etcd that the storage has seen."""

    cluster_id: str
    format: int
    generation: int
    etcd_revision: int
    """Lowest possible revision of etcd in this generation."""

    @property
    def identity(self) -> ClusterIdentity:
        """The part that etcd also holds."""
        return ClusterIdentity(cluster_id=self.cluster_id, generation=self.generation)

    @property
    def position(self) -> tuple[int, int]:
        """Generation and revision, which only grow in this order."""
        return self.generation, self.etcd_revision
