"""Decisions about an etcd and a storage, as a table."""

import pytest

from seaweedmq.core.identity import Create, Decision, EtcdState, Join, Reject, StorageState, decide
from seaweedmq.model.cluster import ClusterIdentity, StorageMarker


def key(cluster_id: str = "a", generation: int = 0) -> ClusterIdentity:
    return ClusterIdentity(cluster_id=cluster_id, generation=generation)


def marker(cluster_id: str = "a", generation: int = 0, revision: int = 10, storage_format: int = 1) -> StorageMarker:
    return StorageMarker(cluster_id=cluster_id, format=storage_format, generation=generation, etcd_revision=revision)


def decided(
    etcd: ClusterIdentity | None = None, storage: StorageMarker | None = None, *, revision: int = 10, topics: str = ""
) -> Decision:
    """Make the decision. ``topics`` names the stores that hold topics."""
    return decide(
        EtcdState(identity=etcd, revision=revision, has_topics="etcd" in topics),
        StorageState(uri="/mnt/mq", marker=storage, has_topics="storage" in topics),
        new_id="new",
    )


@pytest.mark.parametrize("topics", ["", "etcd storage"])
def test_without_key_and_marker_both_are_created(topics: str) -> None:
    assert decided(topics=topics) == Create(marker("new"), "new", 0)


def test_a_creation_that_was_interrupted_is_completed() -> None:
    assert decided(None, marker("a")) == Create(None, "a", 0)


@pytest.mark.parametrize(
    ("etcd", "storage", "revision"),
    [(key(), marker(), 10), (key(), marker(), 11), (key(generation=2), marker(generation=1), 1)],
)
def test_what_belongs_together_is_joined(etcd: ClusterIdentity, storage: StorageMarker, revision: int) -> None:
    assert decided(etcd, storage, revision=revision, topics="etcd storage") == Join(etcd)


LOST = "etcd is empty, and storage /mnt/mq holds the topics of a cluster"
UNMOUNTED = "storage /mnt/mq has no cluster.json, and etcd has a cluster"
RECOVER = "`seaweedmq cluster recover --storage /mnt/mq --etcd ENDPOINTS`"


@pytest.mark.parametrize(
    ("etcd", "storage", "topics", "words"),
    [
        (None, None, "storage", LOST),
        (None, marker(), "storage", LOST),
        (None, marker(generation=1), "", LOST),
        (key(), None, "", UNMOUNTED),
        (key(), None, "storage", UNMOUNTED),
        (None, None, "etcd", UNMOUNTED),
        (key(), marker(revision=11), "", "etcd is at revision 10 of generation 0"),
        (key(), marker(generation=1, revision=1), "", "has seen revision 1 of generation 1"),
        (None, marker(), "etcd storage", "restored from an older backup"),
    ],
)
def test_what_an_operator_has_to_mend_is_refused(
    etcd: ClusterIdentity | None, storage: StorageMarker | None, topics: str, words: str
) -> None:
    refused = decided(etcd, storage, topics=topics)
    assert isinstance(refused, Reject)
    assert words in refused.reason
    assert (RECOVER in refused.reason) == (UNMOUNTED not in refused.reason)


@pytest.mark.parametrize(
    ("etcd", "storage", "words"),
    [
        (key("b"), marker("a"), "belongs to cluster a, and etcd to cluster b: correct --storage or --etcd"),
        (key(), marker(storage_format=2), "has format 2, this build reads 1: run a newer build"),
        (None, marker(storage_format=2), "run a newer build"),
    ],
)
def test_a_wrong_option_is_refused(etcd: ClusterIdentity | None, storage: StorageMarker, words: str) -> None:
    refused = decided(etcd, storage)
    assert isinstance(refused, Reject)
    assert words in refused.reason
