"""Well-formed requests with impossible contents: see ``test_bad_input.py``, which has the table of all of them."""

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from seaweedmq.kafka.admin.configs import ResourceKind
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import (
    API,
    REQUESTS,
    UUID,
    CreateTopicsRequest,
    DeleteRecordsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
    ListOffsetsRequest,
)
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.raw import (
    BY_ID,
    FETCH,
    Brokers,
    commit_fields,
    fetch_fields,
    join_fields,
)
from tests.kafka.in_process_client import batch, records_of
from tests.kafka.wire.script import script

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("nobody_else_is_harmed")]

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
ELSEWHERE = (Code.NONE, Code.NOT_LEADER_OR_FOLLOWER, Code.LEADER_NOT_AVAILABLE, Code.UNKNOWN_TOPIC_OR_PARTITION)
"""Answers of a broker for a partition until it knows that the partition has moved."""
NOBODYS_ID = UUID(int=1)


# --- Fetch and ListOffsets


async def test_places_that_are_none(brokers: Brokers, create: Callable[..., str]) -> None:
    topic = create(2)
    port = await brokers.leader(topic)
    assert (await brokers.produce(topic, 0, batch(b"x"), port=port)).error_code == Code.NONE
    for partition in (-1, 2, INT32_MAX, -(2**31)):
        assert (await brokers.produce(topic, partition, batch(b"x"), port=port)).error_code == (
            Code.UNKNOWN_TOPIC_OR_PARTITION
        )
        found, _ = await brokers.fetch(topic, partition, 0, port=port)
        assert found.error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
    for offset, code in (
        (-5, Code.OFFSET_OUT_OF_RANGE),
        (-(2**63), Code.OFFSET_OUT_OF_RANGE),
        (2, Code.OFFSET_OUT_OF_RANGE),
        (INT64_MAX, Code.OFFSET_OUT_OF_RANGE),
        (1, Code.NONE),
    ):
        found, _ = await brokers.fetch(topic, 0, offset, port=port)
        assert (found.error_code, found.records or b"") == (code, b""), offset
    for epoch, code in ((INT32_MAX, Code.UNKNOWN_LEADER_EPOCH), (-1, Code.NONE), (0, Code.NONE)):
        found, _ = await brokers.fetch(topic, 0, 0, port=port, epoch=epoch)
        assert found.error_code == code
    found, _ = await brokers.fetch("", 0, 0, port=port, topic_id=NOBODYS_ID)
    assert found.error_code == Code.UNKNOWN_TOPIC_ID
    said = await brokers.produce("", 0, batch(b"x"), port=port, version=BY_ID, topic_id=NOBODYS_ID)
    assert said.error_code == Code.UNKNOWN_TOPIC_ID


async def test_places_that_are_none_any_more(kafka: Kafka, brokers: Brokers, create: Callable[..., str]) -> None:
    topic = create()
    port = await brokers.leader(topic)
    for _ in range(2):
        assert (await brokers.produce(topic, 0, batch(b"x"), port=port)).error_code == Code.NONE
    make = DeleteRecordsRequest.DeleteRecordsTopic
    asked = make(name=topic, partitions=[make.DeleteRecordsPartition(partition_index=0, offset=1)])
    reply = await brokers.ask(port, API.DELETE_RECORDS, 2, topics=[asked], timeout_ms=10_000)
    assert reply.topics[0].partitions[0].low_watermark == 1
    for offset, code in ((0, Code.OFFSET_OUT_OF_RANGE), (1, Code.NONE)):
        found, _ = await brokers.fetch(topic, 0, offset, port=port)
        assert found.error_code == code
    assert (await brokers.fetch(topic, 0, 1, port=port, epoch=0))[0].error_code == Code.NONE
    kafka.cluster.ok("segment", "seal", f"kafka/{topic}", "0")
    async with asyncio.timeout(10):
        while (found := (await brokers.fetch(topic, 0, 1, epoch=0))[0]).error_code in ELSEWHERE:
            pass
    assert found.error_code == Code.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("timestamp", [INT64_MAX, INT64_MAX // 1_000 + 1, 253_402_300_800_000, -6, -(2**63)])
async def test_times_that_are_none(brokers: Brokers, create: Callable[..., str], timestamp: int) -> None:
    topic = create()
    port = await brokers.leader(topic)
    assert (await brokers.produce(topic, 0, batch(b"x"), port=port)).error_code == Code.NONE
    make = ListOffsetsRequest.ListOffsetsTopic
    part = make.ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=timestamp)
    wanted = {"replica_id": -1, "isolation_level": 0, "topics": [make(name=topic, partitions=[part])]}
    reply = await brokers.ask(port, API.LIST_OFFSETS, 7, **wanted)
    said = reply.topics[0].partitions[0]
    code = Code.NONE if timestamp >= 0 else Code.UNSUPPORTED_VERSION
    assert (said.error_code, said.offset, said.timestamp) == (code, -1, -1)


async def test_sizes_that_are_none_give_the_first_batch_or_nothing(
    brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create()
    port = await brokers.leader(topic)
    for _ in range(2):
        assert (await brokers.produce(topic, 0, batch(b"x" * 100), port=port)).error_code == Code.NONE
    for size in (0, -1, -(2**31)):
        for sizes in ({"max_bytes": size}, {"partition_max_bytes": size}):
            found, _ = await brokers.fetch(topic, 0, 0, port=port, **sizes)
            assert found.error_code == Code.NONE
            assert len(records_of(bytes(found.records or b""))) <= 1
    found, _ = await brokers.fetch(topic, 0, 0, port=port, max_bytes=INT32_MAX, partition_max_bytes=INT32_MAX)
    assert len(records_of(bytes(found.records))) == 2
    for waits in ({"max_wait_ms": -1, "min_bytes": INT32_MAX}, {"max_wait_ms": 0, "min_bytes": -1}):
        began = time.monotonic()
        found, _ = await brokers.fetch(topic, 0, 2, port=port, **waits)
        assert (found.error_code, found.records or b"") == (Code.NONE, b"")
        assert time.monotonic() - began < 2


async def test_who_waits_for_ever_is_forgotten_when_it_hangs_up(brokers: Brokers, create: Callable[..., str]) -> None:
    topic = create()
    port = await brokers.leader(topic)
    fields = fetch_fields(topic, 0, 0, max_wait_ms=INT32_MAX, min_bytes=INT32_MAX)
    for _ in range(50):
        async with script(port) as peer:
            for number in range(20):
                peer.ask(number, API.FETCH, FETCH, REQUESTS[API.FETCH](version=FETCH, **fields))
            await peer.writer.drain()


async def test_sessions_that_are_none(brokers: Brokers, create: Callable[..., str]) -> None:
    topic = create()
    port = await brokers.leader(topic)
    for session, epoch, code in (
        (12_345, 1, Code.FETCH_SESSION_ID_NOT_FOUND),
        (INT32_MAX, INT32_MAX, Code.FETCH_SESSION_ID_NOT_FOUND),
        (0, 7, Code.FETCH_SESSION_ID_NOT_FOUND),
    ):
        _, reply = await brokers.fetch(topic, 0, 0, port=port, session_id=session, session_epoch=epoch)
        assert (reply.error_code, reply.responses) == (code, [])
    _, reply = await brokers.fetch(topic, 0, 0, port=port, session_id=0, session_epoch=0)
    _, again = await brokers.fetch(topic, 0, 0, port=port, session_id=reply.session_id, session_epoch=9)
    assert again.error_code == Code.INVALID_FETCH_SESSION_EPOCH


# --- groups


async def test_groups_that_can_not_be(brokers: Brokers) -> None:
    port = await brokers.coordinator("bad")

    async def join(group: str, member: str = "", **other: Any) -> Any:
        return await brokers.ask(port, API.JOIN_GROUP, 7, **join_fields(group, member, **other))

    assert (await join("")).error_code == Code.INVALID_GROUP_ID
    long = "g" * 32_767
    there = await brokers.ask(await brokers.coordinator(long), API.JOIN_GROUP, 7, **join_fields(long))
    assert there.error_code == Code.MEMBER_ID_REQUIRED
    assert (await join("bad", session_timeout_ms=1)).error_code == Code.INVALID_SESSION_TIMEOUT
    assert (await join("bad", session_timeout_ms=-1)).error_code == Code.INVALID_SESSION_TIMEOUT
    assert (await join("bad", protocols=[])).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert (await join("bad", protocol_type="")).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    assert (await join("bad", "a-stranger")).error_code == Code.UNKNOWN_MEMBER_ID
    first = await join("bad")
    assert first.error_code == Code.MEMBER_ID_REQUIRED
    joined = await join("bad", first.member_id)
    assert (joined.error_code, joined.generation_id) == (Code.NONE, 1)
    assert (await join("bad", protocol="sticky")).error_code == Code.INCONSISTENT_GROUP_PROTOCOL
    for generation, member, code in (
        (99, first.member_id, Code.ILLEGAL_GENERATION),
        (1, "a-stranger", Code.UNKNOWN_MEMBER_ID),
    ):
        beat = {"group_id": "bad", "generation_id": generation, "member_id": member, "group_instance_id": None}
        assert (await brokers.ask(port, API.HEARTBEAT, 4, **beat)).error_code == code
        sync = beat | {"protocol_type": "consumer", "protocol_name": "range", "assignments": []}
        assert (await brokers.ask(port, API.SYNC_GROUP, 5, **sync)).error_code == code
    static = {"group_id": "bad", "generation_id": 1, "member_id": first.member_id, "group_instance_id": "nobody"}
    assert (await brokers.ask(port, API.HEARTBEAT, 4, **static)).error_code == Code.UNKNOWN_MEMBER_ID
    theirs = await brokers.coordinator("theirs")
    await brokers.ask(theirs, API.JOIN_GROUP, 7, **join_fields("theirs", group_instance_id="one"))
    stolen = static | {"group_id": "theirs", "group_instance_id": "one"}
    assert (await brokers.ask(theirs, API.HEARTBEAT, 4, **stolen)).error_code == Code.FENCED_INSTANCE_ID
    elsewhere = next(other for other in brokers.ports if other != port)
    beat = {"group_id": "bad", "generation_id": 1, "member_id": first.member_id, "group_instance_id": None}
    assert (await brokers.ask(elsewhere, API.HEARTBEAT, 4, **beat)).error_code == Code.NOT_COORDINATOR


async def test_commits_that_can_not_be(brokers: Brokers, create: Callable[..., str]) -> None:
    topic, group = create(2), "commits"
    port = await brokers.coordinator(group)

    async def commit(topics: dict[str, range], **other: Any) -> list[int]:
        reply = await brokers.ask(port, API.OFFSET_COMMIT, 8, **commit_fields(group, topics, **other))
        return [part.error_code for found in reply.topics for part in found.partitions]

    assert await commit({topic: range(2)}) == [Code.NONE] * 2
    assert await commit({topic: range(1)}, metadata="x" * 4_096) == [Code.NONE]
    assert await commit({topic: range(1)}, metadata="x" * 4_097) == [Code.OFFSET_METADATA_TOO_LARGE]
    assert await commit({"nowhere": range(1)}) == [Code.UNKNOWN_TOPIC_OR_PARTITION]
    many = await commit({topic: range(10_000)})
    assert many == [Code.NONE] * 2 + [Code.UNKNOWN_TOPIC_OR_PARTITION] * 9_998
    told = await commit({topic: range(1)}, member_id="a-stranger", generation_id_or_member_epoch=3)
    assert told == [Code.UNKNOWN_MEMBER_ID]


@pytest.mark.parametrize("version", [0, 1])
async def test_a_member_of_a_new_group_is_told_what_to_set(brokers: Brokers, version: int) -> None:
    said = await brokers.ask(
        await brokers.coordinator("new"),
        API.CONSUMER_GROUP_HEARTBEAT,
        version,
        group_id="new",
        member_id="me",
        member_epoch=0,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["anything"],
        topic_partitions=[],
    )
    assert (said.error_code, said.member_epoch, said.assignment) == (Code.UNSUPPORTED_VERSION, 0, None)
    assert "set group.protocol=classic" in said.error_message


# --- topics


def topic_of(name: str, partitions: int = 1, replicas: int = 1, **configs: str) -> Any:
    make = CreateTopicsRequest.CreatableTopic
    return make(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[],
        configs=[make.CreatableTopicConfig(name=name, value=value) for name, value in configs.items()],
    )


async def created(brokers: Brokers, port: int, *topics: Any) -> list[int]:
    reply = await brokers.ask(port, API.CREATE_TOPICS, 5, topics=list(topics), timeout_ms=10_000, validate_only=False)
    return [topic.error_code for topic in reply.topics]


async def test_topics_that_can_not_be_harm_no_other_of_the_request(brokers: Brokers) -> None:
    topics, codes = zip(
        (topic_of("p0", 0), Code.INVALID_PARTITIONS),
        (topic_of("p4097", 4_097), Code.INVALID_PARTITIONS),
        (topic_of("r99", replicas=99), Code.INVALID_REPLICATION_FACTOR),
        (topic_of("a/b"), Code.INVALID_TOPIC_EXCEPTION),
        (topic_of(".."), Code.INVALID_TOPIC_EXCEPTION),
        (topic_of("n" * 250), Code.INVALID_TOPIC_EXCEPTION),
        (topic_of("config", **{"retention.moons": "1"}), Code.INVALID_CONFIG),
        (topic_of("good-one"), Code.NONE),
        strict=True,
    )
    assert await created(brokers, brokers.ports[0], *topics) == list(codes)


async def test_of_those_who_create_a_topic_at_once_one_does(brokers: Brokers) -> None:
    codes = await asyncio.gather(*(created(brokers, port, topic_of("at-once")) for port in brokers.ports * 3))
    assert sorted(code for [code] in codes) == [Code.NONE] + [Code.TOPIC_ALREADY_EXISTS] * 8


async def test_of_those_who_change_configs_of_a_topic_at_once_nobody_is_lost(
    brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create()
    wanted = {
        "segment.ms": "60000",
        "preallocate": "true",
        "flush.messages": "9",
        "flush.ms": "8",
        "segment.bytes": "1048576",
    }

    async def changed(port: int, name: str, value: str) -> dict[str, str]:
        """Return all configs: the queried broker knows all changes by then."""
        make = IncrementalAlterConfigsRequest.AlterConfigsResource
        config = make.AlterableConfig(name=name, config_operation=0, value=value)
        asked = make(resource_type=ResourceKind.TOPIC, resource_name=topic, configs=[config])
        reply = await brokers.ask(port, API.INCREMENTAL_ALTER_CONFIGS, 1, resources=[asked], validate_only=False)
        assert reply.responses[0].error_code == Code.NONE, reply.responses[0].error_message
        named = DescribeConfigsRequest.DescribeConfigsResource(
            resource_type=ResourceKind.TOPIC, resource_name=topic, configuration_keys=list(wanted)
        )
        told = await brokers.ask(port, API.DESCRIBE_CONFIGS, 4, resources=[named])
        return {config.name: config.value for config in told.results[0].configs}

    ports = itertools.cycle(brokers.ports)
    told = await asyncio.gather(*(changed(next(ports), *config) for config in wanted.items()))
    assert wanted in told, "the last broker knows all changes"


async def test_a_topic_that_is_deleted_is_gone_for_who_writes_and_waits_in_it(
    brokers: Brokers, create: Callable[..., str]
) -> None:
    topic = create()
    port = await brokers.leader(topic)
    waiting = asyncio.create_task(brokers.fetch(topic, 0, 0, port=port, max_wait_ms=60_000, min_bytes=INT32_MAX))
    codes: list[int] = []
    has_written = asyncio.Event()

    async def write() -> None:
        while not codes or codes[-1] == Code.NONE:
            codes.append((await brokers.produce(topic, 0, batch(b"x"), port=port)).error_code)
            has_written.set()

    writing = asyncio.create_task(write())
    await has_written.wait()
    reply = await brokers.ask(port, API.DELETE_TOPICS, 5, topic_names=[topic], timeout_ms=10_000)
    assert [said.error_code for said in reply.responses] == [Code.NONE]
    async with asyncio.timeout(10):
        await writing
        found, _ = await waiting
    gone = (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.NOT_LEADER_OR_FOLLOWER)
    assert codes[0] == Code.NONE
    assert codes[-1] in gone
    assert found.error_code in gone
    assert (await brokers.produce(topic, 0, batch(b"x"), port=port)).error_code == Code.UNKNOWN_TOPIC_OR_PARTITION
