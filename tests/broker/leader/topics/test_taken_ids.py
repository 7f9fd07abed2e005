"""No segment id and no topic folder is used twice, even after etcd was set back or has lost its topics."""

import random
from dataclasses import replace

import pytest

from seaweedmq.broker.segment.log_file import create_log_file
from seaweedmq.codec.paths import TOPIC_DOCUMENT, parse_segment_path, table_path, topic_dir
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.errors import InvalidArgument, StorageFailed
from seaweedmq.model.description import TopicDescription
from seaweedmq.model.messages.calls import (
    AlterTopic,
    DeleteTopic,
    DescribeTopic,
    MergeSegments,
    SealSegment,
    SplitSegment,
)
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Scaling, TopicChange, TopicName
from seaweedmq.ports import Delete, Entry, Put
from tests.broker.testbed import NAME, Host, Testbed
from tests.doubles.memory_store import MemoryFile, MemorySegmentStore, StorageOp

OTHER = TopicName("test", "other")
STEPS, RESTORES = 4, 3


def metadata(testbed: Testbed) -> dict[str, Entry]:
    """Return a backup of the topics and segments in etcd."""
    roots = (keys.TOPICS, keys.SEGMENTS)
    return {entry.key: entry for root in roots for entry in testbed.etcd.server.list(root).entries}


async def start_with(testbed: Testbed, backup: dict[str, Entry]) -> Host:
    """Stop the only broker and start another one on an etcd whose topics and segments are those of the backup."""
    (host,) = [host for host in testbed.hosts if host.lives]
    await host.stop()
    gone = [Delete(key) for key in metadata(testbed) if key not in backup]
    testbed.etcd.server.transact([], [*gone, *(Put(key, entry.value) for key, entry in backup.items())])
    started = await testbed.start()
    await testbed.until(lambda: started.inspect.leads)
    return started


def open_in(description: TopicDescription) -> list[Segment]:
    return sorted((s for s in description.segments if s.is_open), key=lambda s: s.slots)


def used(testbed: Testbed) -> dict[int, set[str]]:
    found: dict[int, set[str]] = {}
    for path in testbed.store.files:
        number = parse_segment_path(NAME, path) if path.startswith(f"{topic_dir(NAME)}/log/") else None
        if number is not None:
            found.setdefault(number, set()).add(path)
    return found


async def settled(testbed: Testbed, host: Host) -> list[Segment]:
    """Wait until the broker serves all open segments, replacing those of earlier brokers."""
    view, mine = host.inspect.view, (host.broker.id,)
    await testbed.until(lambda: all(s.replicas == mine for s in view.open_of(NAME).values()) and view.open_of(NAME))
    return open_in(await host.api.call(DescribeTopic(NAME)))


async def change(host: Host, rng: random.Random, segments: list[Segment]) -> None:
    kind = rng.choice(("split", "merge", "seal") if len(segments) > 1 else ("split", "seal"))
    at = rng.randrange(len(segments))
    if kind == "split":
        await host.api.call(SplitSegment(NAME, segments[at].id))
    elif kind == "seal":
        await host.api.call(SealSegment(NAME, segments[at].id))
    else:
        at = min(at, len(segments) - 2)
        await host.api.call(MergeSegments(NAME, segments[at].id, segments[at + 1].id))


@pytest.mark.parametrize("seed", range(8))
async def test_no_segment_id_is_given_again_however_often_etcd_is_set_back(testbed: Testbed, seed: int) -> None:
    rng = random.Random(seed)
    host = await testbed.start()
    await testbed.topic(host, scaling=Scaling.FIXED)
    backups = [metadata(testbed)]
    for _ in range(RESTORES):
        for _ in range(rng.randint(1, STEPS)):
            segments = await settled(testbed, host)
            for segment in segments:
                await testbed.publish(segment, producer=testbed.etcd.server.revision)
            await change(host, rng, segments)
            backups.append(metadata(testbed))
        before = used(testbed)
        backup = rng.choice(backups)
        known = {keys.parse_segment_key(key)[1] for key in backup if key.startswith(keys.SEGMENTS)}
        host = await start_with(testbed, backup)
        opened = await settled(testbed, host)
        assert not {s.id for s in opened} & (before.keys() | known), "each got a new id"


async def test_partitions_that_are_added_get_new_ids(testbed: Testbed) -> None:
    host = await testbed.start()
    await testbed.topic(host, partitions=1)
    backup = metadata(testbed)
    await host.api.call(AlterTopic(NAME, TopicChange(partitions=3)))
    for segment in await settled(testbed, host):
        await testbed.publish(segment, producer=testbed.etcd.server.revision)
    before = used(testbed)
    assert before.keys() == {0, 1, 2}
    host = await start_with(testbed, backup)
    await host.api.call(AlterTopic(NAME, TopicChange(partitions=3)))
    assert not {s.id for s in await settled(testbed, host)} & before.keys()


async def test_the_folder_of_a_topic_is_listed_once(testbed: Testbed, monkeypatch: pytest.MonkeyPatch) -> None:
    listed: list[TopicName] = []
    used_segments = MemorySegmentStore.used_segments

    async def counted(store: MemorySegmentStore, topic: TopicName) -> frozenset[int]:
        listed.append(topic)
        return await used_segments(store, topic)

    monkeypatch.setattr(MemorySegmentStore, "used_segments", counted)
    host = await testbed.single(scaling=Scaling.FIXED, segments=4)
    await testbed.topic(host, OTHER)
    assert listed == [], "their folders hold nothing"
    for segment in range(4):
        await host.api.call(SplitSegment(NAME, segment))
    await host.api.call(MergeSegments(NAME, 4, 5))
    assert listed == [NAME]
    await host.api.call(DeleteTopic(NAME))
    await testbed.topic(host, scaling=Scaling.FIXED)
    await host.api.call(SplitSegment(NAME, 0))
    assert listed == [NAME, NAME], "another topic of the name has ids of its own"


async def test_a_storage_that_cannot_be_listed_seals_nothing(testbed: Testbed) -> None:
    host = await testbed.start()
    await testbed.topic(host)
    testbed.faults.failing[StorageOp.LIST] = "stale handle"
    with pytest.raises(StorageFailed, match="stale handle"):
        await host.api.call(SplitSegment(NAME, 0))
    assert [s.is_open for s in host.inspect.view.segments_of(NAME).values()] == [True]
    testbed.faults.failing.clear()
    assert [s.id for s in open_in(await host.api.call(SplitSegment(NAME, 0)))] == [1, 2]


async def lose_topics(testbed: Testbed) -> Host:
    """Remove all topics from etcd, keeping the identity of the cluster."""
    return await start_with(testbed, {})


@pytest.mark.parametrize("left", ["all", "logs", "documents"])
async def test_the_folder_of_another_topic_is_not_taken(testbed: Testbed, left: str) -> None:
    host = await testbed.start()
    uid = (await testbed.topic(host)).topic.uid
    await testbed.publish((await settled(testbed, host))[0], producer=testbed.etcd.server.revision)
    host = await lose_topics(testbed)
    for path in list(testbed.store.files):
        is_document = path.startswith(topic_dir(NAME)) and path.endswith(".json")
        is_log = path.startswith(f"{topic_dir(NAME)}/log/")
        if (left == "logs" and is_document) or (left == "documents" and is_log):
            del testbed.store.files[path]
    files = {path: bytes(file.data) for path, file in testbed.store.files.items() if path.startswith(topic_dir(NAME))}
    assert files
    with pytest.raises(InvalidArgument) as caught:
        await testbed.topic(host)
    for words in (f"the folder {topic_dir(NAME)} of storage memory", f"uid {uid}", "seaweedmq cluster recover"):
        assert words in str(caught.value)
    assert {p: bytes(f.data) for p, f in testbed.store.files.items() if p.startswith(topic_dir(NAME))} == files
    assert (await testbed.topic(host, OTHER)).topic.name == OTHER


async def test_files_that_do_not_name_their_topic_are_another_ones(testbed: Testbed) -> None:
    host = await testbed.start()
    for path in (table_path(NAME, 0, 0, 5), f"{topic_dir(NAME)}/{TOPIC_DOCUMENT}"):
        testbed.store.files[path] = MemoryFile(bytearray(b"?"), 0, "", 1, named=True)
        with pytest.raises(InvalidArgument, match="uid unknown"):
            await testbed.topic(host)
        del testbed.store.files[path]
    await testbed.topic(host)


async def test_what_a_late_writer_leaves_of_a_deleted_topic_is_no_obstacle(testbed: Testbed) -> None:
    host = await testbed.start()
    for has_document in (True, False):
        topic = (await testbed.topic(host)).topic
        (segment,) = await settled(testbed, host)
        await host.api.call(DeleteTopic(NAME))
        await testbed.until(lambda: not any(path.startswith(topic_dir(NAME)) for path in testbed.store.files))
        late = await create_log_file(testbed.store, topic, segment, 0, "late", ())
        await late.close()
        if has_document:
            await testbed.store.put_documents(NAME, {TOPIC_DOCUMENT: topic_document(topic)}, uid=7, revision=1)
        description = await testbed.topic(host)
        assert description.topic.uid != topic.uid
        assert [s.id for s in description.segments] == [0]
        assert late.path not in testbed.store.files
        await host.api.call(DeleteTopic(NAME))
    writer = await create_log_file(testbed.store, topic, replace(segment, id=3), 0, "late", ())
    del testbed.store.files[writer.path].data[9:]  # its creation was interrupted: it belongs to no topic
    assert [s.id for s in (await testbed.topic(host)).segments] == [4], "its id is taken"
