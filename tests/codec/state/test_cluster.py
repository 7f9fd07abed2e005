"""``cluster.json`` and the key of the cluster: golden bytes, round trips, damage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.state.cluster import identity_from_json, identity_to_json, marker_document, marker_from_document
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.cluster import ClusterIdentity, StorageMarker

UINTS = st.integers(0, 2**64 - 1)
TEXTS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
MARKERS = st.builds(StorageMarker, cluster_id=TEXTS, format=st.integers(1, 99), generation=UINTS, etcd_revision=UINTS)
DOCUMENT = b"""{
  "v": 1,
  "cluster_id": "c-0123",
  "format": 1,
  "generation": 2,
  "etcd_revision": 345
}
"""


@given(MARKERS)
def test_markers_survive(marker: StorageMarker) -> None:
    assert marker_from_document(marker_document(marker)) == marker
    assert identity_from_json(identity_to_json(marker.identity)) == marker.identity


def test_the_bytes() -> None:
    marker = StorageMarker(cluster_id="c-0123", format=1, generation=2, etcd_revision=345)
    assert marker_document(marker) == DOCUMENT
    assert identity_to_json(marker.identity) == b'{"v":1,"cluster_id":"c-0123","generation":2}'
    assert marker_from_document(DOCUMENT.replace(b'"v": 1,', b'"v": 1, "later": [],')) == marker
    read = identity_from_json(b'{"v":1,"cluster_id":"c","generation":0,"later":1}')
    assert read == ClusterIdentity(cluster_id="c", generation=0)


@pytest.mark.parametrize(
    "damaged", [b"", DOCUMENT[:-30], DOCUMENT.replace(b'"c-0123"', b'""'), DOCUMENT.replace(b"345", b"-1")]
)
def test_a_damaged_marker_is_an_error(damaged: bytes) -> None:
    with pytest.raises(Corrupt, match=r"cluster\.json metadata"):
        marker_from_document(damaged)


def test_a_later_version_is_an_error() -> None:
    with pytest.raises(Unsupported, match="has version 2"):
        marker_from_document(DOCUMENT.replace(b'"v": 1', b'"v": 2'))
