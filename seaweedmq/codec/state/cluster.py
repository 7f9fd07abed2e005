"""Conversion of ``cluster.json`` at the root of the storage, and of the cluster's etcd value."""

import json

from seaweedmq.codec.state.json_fields import METADATA_VERSION, JsonFields, to_json
from seaweedmq.model.cluster import ClusterIdentity, StorageMarker


def marker_document(marker: StorageMarker) -> bytes:
    """Return ``cluster.json``, indented for operators."""
    fields = {
        "v": METADATA_VERSION,
        "cluster_id": marker.cluster_id,
        "format": marker.format,
        "generation": marker.generation,
        "etcd_revision": marker.etcd_revision,
    }
    return json.dumps(fields, indent=2).encode() + b"\n"


def marker_from_document(content: bytes) -> StorageMarker:
    """Read ``cluster.json``, or raise Corrupt or, for a later version, Unsupported."""
    fields = JsonFields("cluster.json", content)
    return StorageMarker(
        cluster_id=fields.text("cluster_id"),
        format=fields.uint("format", low=1),
        generation=fields.uint("generation"),
        etcd_revision=fields.uint("etcd_revision"),
    )


def identity_to_json(identity: ClusterIdentity) -> bytes:
    """Return the value of the cluster's etcd key."""
    return to_json({"v": METADATA_VERSION, "cluster_id": identity.cluster_id, "generation": identity.generation})


def identity_from_json(data: bytes) -> ClusterIdentity:
    """Read the value of the cluster's etcd key, or raise Corrupt or, for a later version, Unsupported."""
    fields = JsonFields("cluster", data)
    return ClusterIdentity(cluster_id=fields.text("cluster_id"), generation=fields.uint("generation"))
