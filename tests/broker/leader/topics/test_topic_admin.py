"""Topic administration through any broker, leader or not."""

import asyncio
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pytest

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, document_path
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.codec.state.metadata import segment_to_json
from seaweedmq.codec.topic_schema import schema_from_bytes, schema_to_bytes
from seaweedmq.errors import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    SeaweedMQError,
    StaleMetadata,
    StorageFailed,
)
from seaweedmq.model.broker import ClusterStatus
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import (
    AdoptSchema,
    AlterTopic,
    Call,
    CreateTopic,
    CreateTopics,
    DeleteTopic,
    DescribeTopic,
    GetClusterStatus,
    ListTopics,
    TopicStats,
)
from seaweedmq.model.ring import WHOLE_RING, covers_ring
from seaweedmq.model.topic import Durability, TopicChange, TopicName, TopicSpec
from seaweedmq.ports import Compare, Delete, Put
from tests.broker.testbed import CONFIG, NAME, Host, Testbed, story, values
from tests.doubles.memory_meta import MemoryMetaServer
from tests.doubles.memory_store import StorageOp

R = TypeVar("R")
OTHER = TopicName("test", "other")


async def patiently(host: Host, request: Call[R]) -> R:
    """Call as a client does: retry after a retriable error."""
    for _ in range(100):
        try:
            answer: R = await host.api.call(request)
            return answer
        except SeaweedMQError as error:
            if not error.retryable:
                raise
        await asyncio.sleep(0.2)
    raise AssertionError(f"{request} never worked")


def whole(description: TopicDescription) -> bool:
    return covers_ring((s.slots for s in description.segments if s.is_open), WHOLE_RING)


@story
async def test_every_broker_takes_every_call(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    for n, host in enumerate(hosts):
        name = TopicName("test", f"topic-{n}")
        assert (await testbed.topic(host, name, segments=3)).topic.name == name
        for other in hosts:
            description = await other.api.call(DescribeTopic(name))
            assert whole(description)
            assert len(description.addresses) == 3
        changed = await hosts[n - 1].api.call(AlterTopic(name, TopicChange(durability=Durability.REPLICATED)))
        assert changed.topic.durability is Durability.REPLICATED
        status = await host.api.call(GetClusterStatus())
        assert (status.leader, status.topics, status.open_segments) == (testbed.leader().broker.id, n + 1, 3 * (n + 1))
    await hosts[0].api.call(DeleteTopic(TopicName("test", "topic-1")))
    await testbed.until(lambda: all(len(h.inspect.view.topics) == 2 for h in hosts))
    assert [t.name.name for t in await hosts[1].api.call(ListTopics())] == ["topic-0", "topic-2"]


@story
async def test_segments_are_spread_evenly(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    await testbed.topic(hosts[0], segments=9)
    status = await hosts[1].api.call(GetClusterStatus())
    assert [b.open_segments for b in status.brokers] == [3, 3, 3]


@story
async def test_brokers_that_follow_every_segment_lead_as_many_each(testbed: Testbed) -> None:
    """With four segments on three brokers, one broker leads two of every topic, and not always the same one."""
    hosts = await testbed.cluster(3)
    specs = [TopicSpec(name=TopicName("test", f"topic-{n}"), segments=4, replicas=3) for n in range(12)]
    await patiently(hosts[0], CreateTopics(tuple(specs[:6])))
    for spec in specs[6:]:
        await patiently(hosts[0], CreateTopic(spec))
    assert sorted(testbed.leader().inspect.view.led.values()) == [16, 16, 16]
    await patiently(hosts[0], DeleteTopic(specs[0].name))
    await testbed.until(lambda: sum(hosts[0].inspect.view.led.values()) == 44)


@pytest.mark.parametrize(
    ("request_", "kind", "sentence"),
    [
        (CreateTopic(TopicSpec(name=NAME)), AlreadyExists, "topic test/topic exists: choose another name"),
        (CreateTopic(TopicSpec(name=OTHER, replicas=3)), InvalidArgument, "but 2 brokers are live"),
        (CreateTopic(TopicSpec(name=OTHER, segments=0)), InvalidArgument, "0 segments requested"),
        (CreateTopic(TopicSpec(name=OTHER, schema=b"junk")), InvalidArgument, "schema"),
        (AlterTopic(OTHER, TopicChange(retention_s=1)), NotFound, "there is no topic test/other"),
        (AlterTopic(NAME, TopicChange(retention_s=-1)), InvalidArgument, "retention of -1"),
        (DeleteTopic(OTHER), NotFound, "there is no topic test/other"),
        (DescribeTopic(OTHER), NotFound, "there is no topic test/other"),
        (TopicStats(OTHER), NotFound, "there is no topic test/other"),
        (AdoptSchema(OTHER, schema_to_bytes(pa.schema([("a", pa.int64())]))), NotFound, "no topic test/other"),
    ],
)
@story
async def test_what_can_not_be_done_is_said_in_one_sentence_by_every_broker(
    testbed: Testbed, request_: Call[object], kind: type[SeaweedMQError], sentence: str
) -> None:
    hosts = await testbed.cluster(2)
    await testbed.topic(hosts[0])
    for host in hosts:
        with pytest.raises(kind, match=sentence):
            await host.api.call(request_)


@story
async def test_a_topic_is_known_everywhere_once_its_creation_was_answered(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    testbed.etcd.latency_s_max = 0.3
    for n in range(10):
        name = TopicName("test", f"topic-{n}")
        await testbed.topic(hosts[n % 3], name)
        for host in hosts:
            assert whole(await host.api.call(DescribeTopic(name)))


@story
async def test_a_topic_of_many_segments_takes_several_transactions_and_is_whole(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    description = await testbed.topic(hosts[1], segments=350)
    assert len(description.segments) == 350
    assert whole(description)
    await testbed.until(lambda: sum(len(h.inspect.segments) for h in hosts) == 350)
    await hosts[0].api.call(DeleteTopic(NAME))
    await testbed.until(lambda: not any(h.inspect.segments for h in hosts))
    assert not testbed.etcd.server.list(keys.SEGMENTS).entries


class DyingServer:
    """A server that lets a leader die right after its n-th metadata transaction."""

    def __init__(self, testbed: Testbed, victim: Host, after: int) -> None:
        self.transact = testbed.etcd.server.transact
        self.victim, self.left = victim, after
        testbed.etcd.server.transact = self  # type: ignore[assignment,method-assign]
        self.server: MemoryMetaServer = testbed.etcd.server

    def __call__(self, compares: list[Compare], then: list[Put | Delete]) -> int | None:
        revision = self.transact(compares, then)
        if any(w.key.startswith((keys.TOPICS, keys.SEGMENTS)) for w in then):
            self.left -= 1
            if self.left == 0:
                self.victim.kill()
        return revision


@pytest.mark.parametrize("after", [1, 2, 3, 4])
@story
async def test_a_leader_that_dies_while_it_creates_a_topic_leaves_nothing_that_harms_the_next_attempt(
    testbed: Testbed, after: int
) -> None:
    hosts = await testbed.cluster(3)
    leader = testbed.leader()
    other = next(h for h in hosts if h is not leader)
    DyingServer(testbed, leader, after)
    with pytest.raises(SeaweedMQError) as failed:
        await testbed.topic(other, segments=350)
    assert failed.value.retryable
    try:
        description = await patiently(other, CreateTopic(TopicSpec(name=NAME, segments=2)))
    except AlreadyExists:
        description = await patiently(other, DescribeTopic(NAME))
        assert after == 4
    assert isinstance(description, TopicDescription)
    assert whole(description)


@story
async def test_creations_of_one_name_at_the_same_time_make_one_whole_topic(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    results = await asyncio.gather(
        *(testbed.topic(hosts[n % 3], segments=segments) for n, segments in enumerate((250, 3, 120, 1, 500))),
        return_exceptions=True,
    )
    made = [r for r in results if isinstance(r, TopicDescription)]
    assert len(made) == 1
    assert all(isinstance(r, AlreadyExists | TopicDescription) for r in results)
    description = await hosts[0].api.call(DescribeTopic(NAME))
    assert whole(description)
    assert len(description.segments) == len(made[0].segments)


@story
async def test_changes_at_the_same_time_all_take_effect(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    await testbed.topic(hosts[0])
    await asyncio.gather(
        hosts[0].api.call(AlterTopic(NAME, TopicChange(retention_s=50))),
        hosts[1].api.call(AlterTopic(NAME, TopicChange(retention_bytes=60))),
        hosts[2].api.call(AlterTopic(NAME, TopicChange(durability=Durability.REPLICATED))),
    )
    topic = (await hosts[0].api.call(DescribeTopic(NAME))).topic
    assert (topic.retention_s, topic.retention_bytes, topic.durability) == (50, 60, Durability.REPLICATED)


@story
async def test_a_change_that_was_made_for_another_state_of_the_topic_is_not_taken(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    await testbed.topic(hosts[0])
    before = await hosts[0].api.call(AlterTopic(NAME, TopicChange()))
    for number, host in enumerate(hosts, start=50):
        found = await host.api.call(AlterTopic(NAME, TopicChange()))
        await host.api.call(AlterTopic(NAME, TopicChange(retention_s=number), revision=found.revision))
        with pytest.raises(StaleMetadata, match="has changed since it was read"):
            await host.api.call(AlterTopic(NAME, TopicChange(retention_s=7), revision=before.revision))
        assert (await host.api.call(AlterTopic(NAME, TopicChange()))).topic.retention_s == number


@story
async def test_killing_the_leader_costs_a_caller_no_more_than_retries_for_a_lease(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    await testbed.topic(hosts[0])
    leader = testbed.leader()
    other = next(h for h in hosts if h is not leader)
    before = testbed.loop.time()
    leader.kill()
    await patiently(other, CreateTopic(TopicSpec(name=OTHER)))
    assert testbed.loop.time() - before <= CONFIG.lease_ttl_s + 1.5
    assert whole(await other.api.call(DescribeTopic(OTHER)))


@story
async def test_a_leader_that_was_frozen_changes_nothing_and_its_callers_are_served_by_the_next(
    testbed: Testbed,
) -> None:
    hosts = await testbed.cluster(3)
    old = testbed.leader()
    other = next(h for h in hosts if h is not old)
    calling = asyncio.create_task(patiently(old, CreateTopic(TopicSpec(name=NAME, segments=150))))
    await asyncio.sleep(0.004)
    old.freeze()
    await testbed.until(lambda: any(h.inspect.leads for h in hosts if h is not old))
    old.thaw()
    try:
        description = await calling
    except AlreadyExists:
        description = await patiently(other, DescribeTopic(NAME))
    assert isinstance(description, TopicDescription)
    assert whole(description)


@story
async def test_more_segments_than_the_brokers_may_hold_are_refused(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2, replace(CONFIG, open_segments_max=5))
    await testbed.topic(hosts[0], segments=9)
    with pytest.raises(InvalidArgument) as refusal:
        await testbed.topic(hosts[1], OTHER, segments=2)
    assert str(refusal.value) == (
        "no room for test/other with 2 segments: 2 brokers may have 5 open segments each (open_segments_max; every "
        "replica counts), and have 9 in all: delete topics, merge segments, add brokers, or raise open_segments_max "
        "on all brokers"
    )
    await testbed.topic(hosts[1], OTHER, segments=1)
    await testbed.until(lambda: sum(len(h.inspect.segments) for h in hosts) == 10)


@story
async def test_a_topic_whose_files_could_not_be_deleted_does_not_haunt_the_next_of_its_name(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1, replace(CONFIG, log_roll_age_s=1, maintenance_interval_s=1))
    await testbed.topic(host)
    await (await host.publisher()).store(frames=9)
    await asyncio.sleep(5)
    testbed.faults.failing[StorageOp.DELETE] = "input/output error"
    with pytest.raises(StorageFailed):
        await host.api.call(DeleteTopic(NAME))
    with pytest.raises(NotFound):
        await host.api.call(DescribeTopic(NAME))
    with pytest.raises(StorageFailed):
        await testbed.topic(host)
    testbed.faults.failing.clear()
    await testbed.topic(host)
    assert not [p for p in testbed.store.files if "/log/" in p or "/table/" in p]
    await (await host.publisher(2)).store(frames=2)
    assert await (await host.subscriber()).until(2) == values(2, 2)


@story
async def test_files_that_could_not_be_deleted_are_deleted_by_the_next_leader(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    await testbed.topic(hosts[0])
    leader, primary = testbed.leader(), await testbed.primary(hosts[0])
    await (await primary.publisher()).store(frames=9)
    testbed.faults.failing[StorageOp.DELETE] = "input/output error"
    with pytest.raises(StorageFailed):
        await leader.api.call(DeleteTopic(NAME))
    leader.kill()
    other = next(h for h in hosts if h.lives)
    await testbed.until(lambda: any(h.lives and h.inspect.leads for h in hosts))
    assert [p for p in testbed.store.files if "/log/" in p]
    assert other.inspect.view.deletions
    testbed.faults.failing.clear()
    await testbed.until(lambda: not [p for p in testbed.store.files if "/log/" in p])
    await testbed.until(lambda: not other.inspect.view.deletions)
    await testbed.topic(other)
    await asyncio.sleep(5)
    assert whole(await other.api.call(DescribeTopic(NAME)))


@story
async def test_segments_of_a_topic_that_was_never_quite_created_are_swept_by_the_next_leader(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    leftover = (await testbed.topic(hosts[0], segments=4)).segments
    await hosts[0].api.call(DeleteTopic(NAME))
    await testbed.topic(hosts[0], OTHER)
    for segment in leftover:
        testbed.etcd.server.transact([], [Put(keys.segment_key(NAME, segment.id), segment_to_json(segment))])
    await testbed.until(lambda: len(testbed.leader().inspect.view.open_segments.get(NAME, {})) == len(leftover))
    status = await patiently(hosts[0], GetClusterStatus())
    assert isinstance(status, ClusterStatus)
    assert sum(b.open_segments for b in status.brokers) == 1, "they count for no broker"
    testbed.leader().kill()
    await testbed.until(lambda: not testbed.etcd.server.list(keys.segments_prefix(NAME)).entries)
    assert testbed.etcd.server.list(keys.segments_prefix(OTHER)).entries


# --- schemas ----------------------------------------------------------------------------------------------------------

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.string())])


@story
async def test_an_empty_topic_adopts_a_schema_once(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    await testbed.topic(hosts[0], segments=4)
    for host in hosts:
        description = await host.api.call(AdoptSchema(NAME, schema_to_bytes(SCHEMA)))
        assert description.topic.schema is not None
        assert schema_from_bytes(description.topic.schema) == SCHEMA
    with pytest.raises(InvalidArgument, match="has another schema already"):
        await hosts[0].api.call(AdoptSchema(NAME, schema_to_bytes(pa.schema([("a", pa.int32())]))))


@story
async def test_what_is_only_metadata_of_a_schema_is_not_kept(testbed: Testbed) -> None:
    (host,) = await testbed.cluster(1)
    decorated = schema_with_metadata()
    assert decorated != schema_to_bytes(schema_from_bytes(decorated))
    created = await testbed.topic(host, schema=decorated)
    assert created.topic.schema == schema_to_bytes(schema_from_bytes(decorated))
    await testbed.topic(host, OTHER)
    adopted = await host.api.call(AdoptSchema(OTHER, decorated))
    assert adopted.topic.schema == created.topic.schema
    again = await host.api.call(AdoptSchema(OTHER, schema_to_bytes(SCHEMA)))
    assert again.topic.schema == created.topic.schema


def schema_with_metadata() -> bytes:
    return SCHEMA.with_metadata({"written by": "pandas"}).serialize().to_pybytes()  # type: ignore[no-any-return]


@story
async def test_a_topic_with_plain_records_adopts_no_schema(testbed: Testbed) -> None:
    hosts = await testbed.cluster(2)
    await testbed.topic(hosts[0], segments=2)
    primary = await testbed.primary(hosts[0], segment=1)
    await (await primary.publisher(segment=1)).store(slots=(40_000, 40_000))
    with pytest.raises(InvalidArgument, match="has plain records"):
        await hosts[0].api.call(AdoptSchema(NAME, schema_to_bytes(SCHEMA)))
    primary.kill()
    other = next(h for h in hosts if h is not primary)
    with pytest.raises(InvalidArgument, match="has plain records"):
        await patiently(other, AdoptSchema(NAME, schema_to_bytes(SCHEMA)))


# --- statistics -------------------------------------------------------------------------------------------------------


@story
async def test_statistics_are_gathered_from_every_primary(testbed: Testbed) -> None:
    hosts = await testbed.cluster(3)
    await testbed.topic(hosts[0], segments=6)
    for n in range(6):
        primary = await testbed.primary(hosts[0], segment=n)
        slot = n * 65536 // 6 + 10
        await (await primary.publisher(segment=n)).store(frames=n + 1, slots=(slot, slot))
    for host in hosts:
        stats = await host.api.call(TopicStats(NAME))
        assert [(s.segment, s.high_watermark, s.flushed_offset) for s in stats] == [(n, n + 1, n + 1) for n in range(6)]
    leader = testbed.leader()
    await testbed.until(lambda: len(leader.inspect.leader.placement.loads) == 3)
    await asyncio.sleep(1.1)
    status = await hosts[0].api.call(GetClusterStatus())
    assert sum(b.open_segments for b in status.brokers) == 6
    assert [b.is_leader for b in status.brokers].count(True) == 1


@story
async def test_a_new_topic_is_in_the_storage_once_its_creation_was_answered_and_durable_soon(testbed: Testbed) -> None:
    """Readers without etcd see the topic, and a late deletion sees the owner of the folder; the creation does not wait
    for the disk."""
    (host,) = await testbed.cluster(1)
    await host.api.call(CreateTopics(tuple(TopicSpec(name=name, segments=2) for name in (NAME, OTHER))))
    documents = [document_path(name, kind) for name in (NAME, OTHER) for kind in (TOPIC_DOCUMENT, LINEAGE_DOCUMENT)]
    assert [path for path in documents if path not in testbed.store.files] == []
    await testbed.until(lambda: all(testbed.store.files[path].named for path in documents))


@story
async def test_a_topic_that_can_not_be_written_keeps_no_other_waiting(testbed: Testbed) -> None:
    """Neither the documents of topics that follow it by name nor the deletion of others waits."""
    (host,) = await testbed.cluster(1)
    bad, gone, good = (TopicName("test", name) for name in ("a-bad", "b-gone", "c-good"))
    for name in (bad, gone, good):
        await testbed.topic(host, name)

    async def faults(op: StorageOp, path: str) -> None:
        if str(bad) in path or (op is StorageOp.DELETE and broken_delete):
            raise StorageFailed(f"{path}: no such luck")

    broken_delete = True
    testbed.store.fault = faults
    for name in (bad, good):
        await host.api.call(AlterTopic(name, TopicChange(retention_s=7)))
    with pytest.raises(StorageFailed):
        await host.api.call(DeleteTopic(gone))
    broken_delete = False
    await testbed.until(lambda: not host.inspect.view.deletions)

    def written(name: TopicName) -> int | None:
        return topic_from_document(bytes(testbed.store.files[document_path(name, TOPIC_DOCUMENT)].data)).retention_s

    await testbed.until(lambda: written(good) == 7)
    assert written(bad) != 7
    testbed.store.fault = testbed.faults
    await testbed.until(lambda: written(bad) == 7)
