"""Unrecoverable segments: clients get their names, other segments continue, and the right file heals them."""

import asyncio
import json
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.logfile import LOG_MAGIC
from seaweedmq.codec.slots import slot_of
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import segment_from_json
from seaweedmq.codec.topic_schema import schema_to_bytes
from seaweedmq.core.lineage.problems import RETRY_S_MAX
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError
from seaweedmq.model.files import FileKind
from seaweedmq.model.messages.calls import (
    AdoptSchema,
    AlterTopic,
    Call,
    DeleteTopic,
    DescribeTopic,
    GetClusterStatus,
    MergeSegments,
    RaiseLowWatermark,
    SealSegment,
    TopicStats,
)
from seaweedmq.model.messages.publish import PublishOpen
from seaweedmq.model.messages.subscribe import EARLIEST, SubscribeOpen
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicChange, TopicName
from tests.broker.testbed import CONFIG, NAME, Host, Streaming, Testbed, values
from tests.doubles.memory_store import StorageOp

OTHER = TopicName("test", "other")
AT_ONCE_S = 1.0
HEALED_WITHIN_S = RETRY_S_MAX + 5.0


def flip_a_bit(testbed: Testbed, path: str) -> None:
    testbed.store.files[path].data[300] ^= 1


def put_another_topics_log_in_place(testbed: Testbed, path: str) -> None:
    other = testbed.files(FileKind.LOG, OTHER)[0].path
    testbed.store.files[path].data[:] = testbed.store.files[other].data


def write_as_a_later_version(testbed: Testbed, path: str) -> None:
    data = testbed.store.files[path].data
    (size,) = struct.unpack_from("<I", data, len(LOG_MAGIC))
    begin = len(LOG_MAGIC) + 4
    text = json.dumps(json.loads(bytes(data[begin : begin + size])) | {"v": 9}, separators=(",", ":")).encode()
    head = bytes(data[:begin]) + text.ljust(size)
    data[: len(head) + 8] = head + struct.pack("<Q", xxh3_64_intdigest(head))


DAMAGES = {
    "a bit of a frame": flip_a_bit,
    "the log of another topic": put_another_topics_log_in_place,
    "a later format": write_as_a_later_version,
}


class Damaged(NamedTuple):
    """A topic of two segments, one of which cannot be recovered."""

    leader: Host
    segment: int
    path: str
    sound: bytes
    """Content of the file before the damage."""

    @property
    def record(self) -> Segment:
        return self.leader.inspect.view.segments[NAME][self.segment]

    @property
    def other(self) -> int:
        return 1 - self.segment

    def slots(self, segment: int) -> dict[str, Any]:
        return {"slots": (self.leader.inspect.view.segments[NAME][segment].slots.lo,) * 2}

    def restore(self, testbed: Testbed) -> None:
        testbed.store.files[self.path].data[:] = self.sound


async def damaged(testbed: Testbed, damage: Callable[[Testbed, str], None] = flip_a_bit, **settings: Any) -> Damaged:
    """Store records in both segments, kill the primary of one, damage its file, and wait until brokers know of it."""
    hosts = await testbed.cluster(2)
    leader = testbed.leader()
    await testbed.topic(leader, **(settings or {"segments": 2}))
    await testbed.topic(leader, OTHER)
    primaries = [await testbed.primary(leader, segment=n) for n in (0, 1)]
    victim = next(host for host in hosts if host is not leader)
    found = Damaged(leader, primaries.index(victim), "", b"")
    for n in (0, 1):
        await testbed.publish(n, frames=4)
    await (await (await testbed.primary(leader, OTHER)).publisher(name=OTHER)).store(frames=4)
    path = testbed.files(FileKind.LOG, segment=found.segment)[0].path
    found = found._replace(path=path, sound=bytes(testbed.store.files[path].data))
    victim.kill()
    damage(testbed, path)
    await testbed.until(lambda: found.record.problem)
    return found


async def at_once(testbed: Testbed, stream: Streaming, request: Any) -> SeaweedMQError | None:
    """Return the error that ends a stream without delay."""
    began = testbed.loop.time()
    await stream.send(request)
    error = await stream.failure()
    assert testbed.loop.time() < began + AT_ONCE_S
    return error


async def read(client: Any, **options: Any) -> list[bytes]:
    async with client.subscriber(str(NAME), **options) as subscriber:
        return [message.value async for message in subscriber]


def key_in(segment: int) -> bytes:
    return next(key for key in (b"%d" % n for n in range(100)) if slot_of(key) // 32_768 == segment)


@pytest.mark.parametrize("damage", DAMAGES)
async def test_the_file_is_named_to_all_and_the_right_one_heals_the_segment(testbed: Testbed, damage: str) -> None:
    found = await damaged(testbed, DAMAGES[damage])
    leader, segment = found.leader, found.segment
    assert found.path in found.record.problem
    entry = await leader.meta.get(keys.segment_key(NAME, segment))
    assert entry is not None
    assert segment_from_json(entry.value) == found.record
    described = await leader.api.call(DescribeTopic(NAME))
    assert [bool(s.problem) for s in described.segments] == [s.id == segment for s in described.segments]
    assert [s.segment for s in await leader.api.call(TopicStats(NAME))] == [found.other]
    assert (await leader.api.call(GetClusterStatus())).unrecoverable_segments == 1
    opening = PublishOpen(topic=NAME, segment=segment, epoch=1, producer_id=1, producer_epoch=0)
    for stream, request in (
        (leader.publish_stream(), opening),
        (
            Streaming(testbed, leader.api.subscribe),
            SubscribeOpen(topic=NAME, segment=segment, start=EARLIEST, credit_bytes=1),
        ),
    ):
        error = await at_once(testbed, stream, request)
        assert isinstance(error, Corrupt)
        assert found.path in str(error)
    await (await leader.publisher(segment=found.other)).store(frames=3, **found.slots(found.other))

    found.restore(testbed)
    await testbed.until(lambda: not found.record.is_open, HEALED_WITHIN_S)
    assert found.record.problem == ""
    assert found.record.end_offset == 4
    assert (await leader.api.call(GetClusterStatus())).unrecoverable_segments == 0
    reader = await leader.subscriber(segment=segment)
    await reader.ending()
    assert reader.values == values(1, 4)


async def test_clients_get_the_file_s_name_at_once_and_other_segments_continue(testbed: Testbed) -> None:
    found = await damaged(testbed)
    began = testbed.loop.time()
    async with await testbed.client() as client:
        async with client.publisher(str(NAME)) as publisher:
            receipt = await publisher.send(b"lost", key=key_in(found.segment))
            with pytest.raises(Corrupt, match=found.path):
                await receipt
            await (await publisher.send(b"kept", key=key_in(found.other)))
            for options in ({"stop_at": "latest"}, {}, {"group": "g"}):
                with pytest.raises(Corrupt, match=found.path):
                    await read(client, start="earliest", **options)
            described = await client.admin.describe_group("g")
            assert [topic.topic for topic in described.topics] == [NAME]
            assert testbed.loop.time() < began + 10 * AT_ONCE_S
            found.restore(testbed)
            await testbed.until(lambda: not found.record.is_open, HEALED_WITHIN_S)
            await (await publisher.send(b"kept", key=key_in(found.segment)))
        got = await read(client, start="earliest", stop_at="latest")
    assert sorted(got) == sorted([*values(1, 4), *values(1, 4), b"kept", b"kept"])


async def test_changes_name_the_file_and_only_the_deletion_of_the_topic_takes_it(testbed: Testbed) -> None:
    found = await damaged(testbed)
    calls: tuple[Call[Any], ...] = (
        MergeSegments(NAME, 0, 1),
        SealSegment(NAME, found.segment),
        AdoptSchema(NAME, schema_to_bytes(pa.schema([("n", pa.int64())]))),
    )
    for call in calls:
        with pytest.raises(Corrupt, match=found.path):
            await found.leader.api.call(call)
    assert found.leader.inspect.view.segments[NAME][found.other].is_open, "nothing was sealed in vain"
    await found.leader.api.call(AlterTopic(NAME, TopicChange(retention_s=1.0)))
    await asyncio.sleep(300)
    assert found.path in testbed.store.files
    assert found.record.is_open
    await found.leader.api.call(DeleteTopic(NAME))
    await testbed.until(lambda: not testbed.files(FileKind.LOG) and not testbed.files(FileKind.LOG, segment=1))
    with pytest.raises(NotFound):
        await found.leader.api.call(DescribeTopic(NAME))
    await testbed.topic(found.leader)


async def test_records_of_other_partitions_are_deleted(testbed: Testbed) -> None:
    found = await damaged(testbed, partitions=2)
    assert await found.leader.api.call(RaiseLowWatermark(NAME, {found.other: 2})) == {found.other: 2}
    with pytest.raises(Corrupt, match=found.path):
        await found.leader.api.call(RaiseLowWatermark(NAME, {found.segment: 2}))


async def test_another_leader_takes_the_problem_over_and_attempts_become_rare(testbed: Testbed) -> None:
    found = await damaged(testbed)
    third = await testbed.start()
    await testbed.until(lambda: len(third.inspect.view.brokers) == 2)
    found.leader.kill()
    await testbed.until(lambda: third.inspect.leads)
    assert found.path in third.inspect.view.segments[NAME][found.segment].problem
    await asyncio.sleep(2 * RETRY_S_MAX)
    revision = third.inspect.view.topic_revision(NAME)
    testbed.faults.counts.clear()
    await asyncio.sleep(5 * RETRY_S_MAX)
    assert testbed.faults.counts[StorageOp.OPEN] < 30, "a hopeless recovery is repeated all the time"
    assert third.inspect.view.topic_revision(NAME) == revision, "the same problem is written again"
    found.restore(testbed)
    await testbed.until(lambda: not third.inspect.view.segments[NAME][found.segment].is_open, HEALED_WITHIN_S)


async def test_a_problem_is_recorded_once_etcd_takes_it(testbed: Testbed, caplog: pytest.LogCaptureFixture) -> None:
    hosts = await testbed.cluster(2, replace(CONFIG, lease_ttl_s=20.0))
    leader = testbed.leader()
    await testbed.topic(leader, segments=2)
    victim = next(host for host in hosts if host is not leader)
    segment = [await testbed.primary(leader, segment=n) for n in (0, 1)].index(victim)
    await (await victim.publisher(segment=segment)).store(frames=4, slots=(segment * 32_768 + 1,) * 2)
    victim.kill()
    path = testbed.files(FileKind.LOG, segment=segment)[0].path
    flip_a_bit(testbed, path)
    held = testbed.faults.hold(StorageOp.READ)
    await testbed.until(lambda: victim.broker.id not in leader.inspect.view.brokers)
    await asyncio.sleep(1)
    testbed.etcd.server.stop()
    held.set()
    await asyncio.sleep(5)
    testbed.etcd.server.start()
    await testbed.until(lambda: path in leader.inspect.view.segments[NAME][segment].problem)
    assert leader.inspect.leads
    assert "record of the problem of" in caplog.text
