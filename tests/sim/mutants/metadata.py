"""Mutants of pruning, which bounds the metadata; see ``mutants``.

They show with a small ``segment_retention_s`` and ``producer_retention_s``, some of them with retention.
"""

from dataclasses import replace
from typing import Any

import pytest

from seaweedmq.broker.leader import metadata, metadata_batcher, pruner
from seaweedmq.broker.upkeep import retention
from seaweedmq.client.cluster import cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.codec.paths import TOPIC_DOCUMENT, document_path
from seaweedmq.codec.state.documents import topic_document, topic_from_document
from seaweedmq.coordination import description
from seaweedmq.model.id_ranges import NO_IDS
from seaweedmq.model.messages.calls import DescribeTopic
from tests.doubles.memory_store import MemorySegmentStore


def forget_nothing(patch: pytest.MonkeyPatch) -> None:
    """Sealed segments and their producers' sequences are never pruned."""

    async def nothing(leader: Any, emptied: Any = None) -> bool:
        return False

    patch.setattr(pruner.Pruner, "_prune_some", nothing)
    patch.setattr(pruner.Pruner, "_trim", nothing)


def keep_what_groups_committed(patch: pytest.MonkeyPatch) -> None:
    """Offsets of pruned segments stay in etcd while the group has no members."""

    async def nothing(leader: Any) -> None:
        """Remove no offsets."""

    patch.setattr(pruner.Pruner, "_forget", nothing)


def forget_the_fence_with_its_segment(patch: pytest.MonkeyPatch) -> None:
    """A primary that wakes up late finds no fence in a pruned segment, and acknowledges."""
    is_fenced = MemorySegmentStore.is_fenced

    async def look(store: Any, topic: Any, uid: int, segment: int) -> bool:
        document = store.files.get(document_path(topic, TOPIC_DOCUMENT))
        if document is None:
            return await is_fenced(store, topic, uid, segment)
        whole = bytes(document.data)
        document.data[:] = topic_document(replace(topic_from_document(whole), pruned=NO_IDS))
        try:
            return await is_fenced(store, topic, uid, segment)
        finally:
            document.data[:] = whole

    patch.setattr(MemorySegmentStore, "is_fenced", look)


def forget_segments_that_have_records(patch: pytest.MonkeyPatch) -> None:
    """A segment is pruned although it has files."""
    look = retention.Retention._report_emptied_segments

    async def blind(upkeep: Any, topic: Any, files: Any) -> None:
        await look(upkeep, topic, {})

    patch.setattr(retention.Retention, "_report_emptied_segments", blind)
    patch.setattr("seaweedmq.core.lineage.pruning.may_lose_its_files", lambda topic, segment: True)


def forget_in_any_order(patch: pytest.MonkeyPatch) -> None:
    """A segment is pruned before its predecessor, so that readers find no successor."""

    def prunable(topic: Any, known: Any, without_files: Any, is_old: Any, count_max: int) -> Any:
        loose = {number: replace(segment, predecessors=()) for number, segment in known.items()}
        return [known[s.id] for s in in_order(topic, loose, without_files, is_old, count_max)]

    in_order = pruner.prunable
    patch.setattr(pruner, "prunable", prunable)
    patch.setattr(retention, "prunable", prunable)


def trimmed_means_nothing_was_stored(patch: pytest.MonkeyPatch) -> None:
    """Sequences are dropped at once, and a missing producer counts as one without stored records."""

    def put(segment: Any) -> Any:
        return segment_put(segment if segment.is_open else replace(segment, sequences=(), sequences_complete=True))

    segment_put = metadata.segment_put
    for module in (metadata, metadata_batcher):
        patch.setattr(module, "segment_put", put)


def take_pages_of_any_moment(patch: pytest.MonkeyPatch) -> None:
    """A later page may come from a broker with older metadata than the first page's."""

    async def page(first: Any, which: Any, api: Any) -> Any:
        return await api.call(DescribeTopic(first.topic.name, which, first.topic.uid))

    patch.setattr(cluster, "_page", page)
    patch.setattr(description, "SEALED_PER_PAGE", 1)


def take_what_a_broker_does_not_know_yet_for_pruned(patch: pytest.MonkeyPatch) -> None:
    """A client believes every description, even from a broker with stale metadata."""

    async def query(view: Any, which: Any) -> Any:
        uid = view._description.topic.uid if view._description is not None else 0
        described = await view._cluster.describe(view.name, which, view._cluster.config.rpc_timeout_s, uid)
        view.update(described)
        return described

    patch.setattr(TopicView, "_query", query)
