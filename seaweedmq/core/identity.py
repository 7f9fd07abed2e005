"""The decision whether a broker may serve: whether its etcd and its storage match, and are equally recent.

| etcd | storage | decision |
|---|---|---|
| no key, no topics | no marker, no topics | a new cluster: create both |
| no key, topics | no marker, topics | written by a build without markers: create both |
| no key, no topics | marker, no topics | a creation that was interrupted: create the key |
| no key, no topics | topics | reject: etcd was lost |
| no key, topics | marker | reject: etcd was restored from before the key |
| key or topics | no marker | reject: the storage is not mounted |
| key | marker of another cluster | reject: one of the two is the wrong one |
| key, behind the marker | marker | reject: etcd was restored from a backup |
| key, at the marker or ahead | marker | join |

Etcd is behind if its generation is lower than the marker's, or equal with a lower revision. Each recovery of etcd
raises the generation, since revisions begin again with it.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.cluster import STORAGE_FORMAT, ClusterIdentity, StorageMarker


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdState:
    """The part of etcd that the decision depends on."""

    identity: ClusterIdentity | None
    revision: int
    """Revision at which the leader last noted that the storage has seen this etcd, else the current one."""
    has_topics: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageState:
    """The part of the storage that the decision depends on."""

    uri: str
    marker: StorageMarker | None
    has_topics: bool


@dataclass(frozen=True, slots=True)
class Join:
    """A decision to serve: etcd and storage match."""

    identity: ClusterIdentity


@dataclass(frozen=True, slots=True)
class Create:
    """A decision to create the missing marker or key, then decide again: another broker may do the same."""

    marker: StorageMarker | None
    """The marker to create; None if it exists."""
    cluster_id: str
    """The cluster id of the key to create; the storage's marker wins if another broker was first."""
    generation: int


@dataclass(frozen=True, slots=True)
class Reject:
    """A decision to serve nothing."""

    reason: str
    """Sentence that names what is missing and the remedy."""


Decision: TypeAlias = Join | Create | Reject


def decide(etcd: EtcdState, storage: StorageState, *, new_id: str) -> Decision:
    """Decide whether to serve. ``new_id`` is the id of the cluster if it is new."""
    marker, key = storage.marker, etcd.identity
    if marker is not None and marker.format != STORAGE_FORMAT:
        return Reject(
            f"storage {storage.uri} has format {marker.format}, this build reads {STORAGE_FORMAT}: run a newer build"
        )
    if marker is None:
        if key is not None or (etcd.has_topics and not storage.has_topics):
            cluster = f"of cluster {key.cluster_id} " if key is not None else ""
            return Reject(
                f"storage {storage.uri} has no cluster.json, and etcd has a cluster: the storage {cluster}is not "
                "mounted there, or --storage names another folder; mount it or correct --storage"
            )
        if storage.has_topics and not etcd.has_topics:
            return _lost(storage)
        made = StorageMarker(cluster_id=new_id, format=STORAGE_FORMAT, generation=0, etcd_revision=etcd.revision)
        return Create(made, new_id, 0)
    if key is None:
        if etcd.has_topics:
            return _behind(etcd, storage, marker)
        if storage.has_topics or marker.generation:
            return _lost(storage)
        return Create(None, marker.cluster_id, marker.generation)
    if key.cluster_id != marker.cluster_id:
        return Reject(
            f"storage {storage.uri} belongs to cluster {marker.cluster_id}, and etcd to cluster {key.cluster_id}: "
            "correct --storage or --etcd"
        )
    if (key.generation, etcd.revision) < marker.position:
        return _behind(etcd, storage, marker)
    return Join(key)


def _lost(storage: StorageState) -> Reject:
    return Reject(
        f"etcd is empty, and storage {storage.uri} holds the topics of a cluster: etcd has lost its data, or --etcd "
        f"names another one; correct --etcd, or rebuild etcd with `{_command(storage)}`"
    )


def _behind(etcd: EtcdState, storage: StorageState, marker: StorageMarker) -> Reject:
    generation = 0 if etcd.identity is None else etcd.identity.generation
    return Reject(
        f"etcd is at revision {etcd.revision} of generation {generation}, and storage {storage.uri} has seen revision "
        f"{marker.etcd_revision} of generation {marker.generation}: etcd was restored from an older backup; rebuild it "
        f"with `{_command(storage)}`"
    )


def _command(storage: StorageState) -> str:
    return f"seaweedmq cluster recover --storage {storage.uri} --etcd ENDPOINTS"
