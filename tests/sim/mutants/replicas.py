"""Mutants of replica write-out, under-replicated segments and recreated topics."""

from dataclasses import replace
from typing import Any
from zlib import crc32

import pytest

from seaweedmq.broker.groups.registry import Groups
from seaweedmq.broker.leader import leader
from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.broker.segment import follower
from seaweedmq.broker.segment.follower import CLOSE_WRITE_OUT_S, FollowerService
from seaweedmq.broker.segment.log_file import create_log_file
from seaweedmq.broker.segment.write_out import ReplicaWriter
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.broker.serve.lookup import Lookup
from seaweedmq.client.admin.admin import Admin
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.cluster.topic_view import TopicView
from seaweedmq.coordination.view import ClusterView
from seaweedmq.core.segment.segment_log import SegmentLog
from seaweedmq.errors import AlreadyExists
from seaweedmq.model.description import ALL
from seaweedmq.model.topic import Durability
from tests.doubles.memory_store import MemorySegmentStore


def two_names_for_a_replica(patch: pytest.MonkeyPatch) -> None:
    """A write-out leaks its name if it fails or its caller is cancelled; two leave none for the next."""

    async def run(writing: Any) -> None:
        replica = writing._replica
        entries = replica.unflushed()
        if writing.is_done or not entries:
            return
        base = entries[0].base_offset
        begun = (writing._store, writing.topic, writing.segment, base)
        producers = replica.producers_below(base)
        try:
            writer = await create_log_file(*begun, writing._broker_id, producers)
        except AlreadyExists:
            writer = await create_log_file(*begun, f"{writing._broker_id}.{replica.epoch}", producers)
        try:
            await writer.append([part for e in entries for part in (e.header, e.payload)])
            await writer.sync()
        finally:
            await writer.close()
        writing.is_done = True

    patch.setattr(ReplicaWriter, "run", run)


def drop_replicas_when_stopped(patch: pytest.MonkeyPatch) -> None:
    """A follower drops its replica on SIGTERM."""

    async def close(service: Any, within_s: float = CLOSE_WRITE_OUT_S) -> None:
        if within_s <= CLOSE_WRITE_OUT_S:  # after a lost lease
            await closed(service, within_s)

    closed = FollowerService.close
    patch.setattr(FollowerService, "close", close)


def trust_one_page_cache(patch: pytest.MonkeyPatch) -> None:
    """A replicated topic without its followers acknowledges written, unflushed records."""
    patch.setattr(SegmentLog, "waits_for_fsync", property(lambda log: log.durability is Durability.STORED))


def know_replicas_by_name(patch: pytest.MonkeyPatch) -> None:
    """A replica of a deleted topic counts as one of a recreated topic."""

    def by_name(name: Any, segment: int) -> tuple[int, int]:
        return crc32(str(name).encode()), segment

    def find(view: Any, name: Any, uid: int, segment: int) -> Any:
        topic, found = view._topics.get(name), view._segments.get(name, {}).get(segment)
        return (topic, found) if topic is not None and found is not None else None

    def begin(service: Any, topic: Any, segment: Any, *, epoch: int) -> Any:
        replica = new_replica(service, topic, segment, epoch=epoch)
        for known in (service.replicas, service._write_outs):
            known[by_name(topic.name, segment.id)] = known.pop((topic.uid, segment.id))
        return replica

    async def write_out(service: Any, ref: Any, end_offset: int) -> Any:
        writing, topic = service._write_outs.get(by_name(ref.topic, ref.segment)), service._view.topics.get(ref.topic)
        if writing is not None and topic is not None:
            writing.topic = topic
        return await written_out(service, ref, end_offset)

    new_replica, written_out = FollowerService._new_replica, FollowerService.write_out
    patch.setattr(ClusterView, "find", find)
    patch.setattr(follower, "_key", lambda ref: by_name(ref.topic, ref.segment))
    patch.setattr(FollowerService, "_new_replica", begin)
    patch.setattr(FollowerService, "write_out", write_out)


def go_on_in_the_namesake(patch: pytest.MonkeyPatch) -> None:
    """Publishers, subscribers and members continue in a recreated topic."""

    async def describe(cluster: Any, name: Any, which: Any = ALL, timeout_s: float | None = None, uid: int = 0) -> Any:
        return await described(cluster, name, which, timeout_s)

    def update(view: Any, description: Any) -> bool:
        known = view._description
        if known is not None and known.topic.uid != description.topic.uid:
            view._description = None
        taken_in: bool = learned(view, description)
        return taken_in

    async def segment(lookup: Any, name: Any, number: int, uid: int = 0) -> Any:
        return await found(lookup, name, number)

    async def catch_up(descriptions: Any, name: Any, uid: int = 0) -> None:
        await caught_up(descriptions, name)

    async def join(groups: Any, opening: Any, requests: Any) -> Any:
        async for reply in joined(groups, replace(opening, topic_uid=0), requests):
            yield reply

    described, learned, found = Cluster.describe, TopicView.update, Lookup.segment
    caught_up, joined = Descriptions.catch_up, Groups.join
    patch.setattr(Cluster, "describe", describe)
    patch.setattr(TopicView, "update", update)
    patch.setattr(Lookup, "segment", segment)
    patch.setattr(Descriptions, "catch_up", catch_up)
    patch.setattr(Groups, "join", join)


def publish_tables_into_the_namesake(patch: pytest.MonkeyPatch) -> None:
    """A conversion in progress when its topic is deleted publishes its tables in the recreated topic."""
    put_file = MemorySegmentStore.put_file

    async def put(store: Any, path: str, content: bytes, beside: Any = None) -> None:
        await put_file(store, path, content)

    patch.setattr(MemorySegmentStore, "put_file", put)


def seal_whoever_has_the_number(patch: pytest.MonkeyPatch) -> None:
    """A replacement decided for a segment of a deleted topic is applied to the recreated topic."""

    def is_open(metadata: Any, segment: Any) -> bool:
        known = metadata.view.segments.get(segment.topic, {}).get(segment.id)
        return segment.topic in metadata.view.topics and known is not None and known.is_open

    patch.setattr(Metadata, "is_open", is_open)


def delete_whoever_has_the_name(patch: pytest.MonkeyPatch) -> None:
    """A deletion does not identify the topic, so that a late one deletes the recreated topic."""

    async def uid(admin: Any, topic: Any) -> int:
        return 0

    patch.setattr(Admin, "_uid", uid)


def free_the_name_before_primaries_have_heard(patch: pytest.MonkeyPatch) -> None:
    """A topic is recreated while a primary still acknowledges records to the deleted one."""

    async def wait_for_nobody(*_: Any) -> None:
        """Free the name at once."""

    patch.setattr(leader, "wait_closed", wait_for_nobody)
