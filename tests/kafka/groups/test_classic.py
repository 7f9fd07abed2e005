"""Group requests in every supported version, on real brokers in virtual time."""

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.kafka.groups.committed_offsets import CommittedOffsetsHandlers
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import (
    API,
    JoinGroupRequest,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from seaweedmq.kafka.wire.versions import ADVERTISED
from seaweedmq.model.messages.calls import DrainBroker
from tests.broker.testbed import Testbed, story
from tests.doubles.memory_store import StorageOp
from tests.kafka.group_testbed import KAFKA, OFFSETS_TOPIC, TOPIC, Cluster, Gateway, Member, commit_of

GROUP = "billing"
MANY = 10_000


def versions(api: API) -> range:
    return range(ADVERTISED[api].lowest, ADVERTISED[api].highest + 1)


async def one(testbed: Testbed, **settings: Any) -> tuple[Cluster, Gateway]:
    """Start a broker that coordinates all groups, and wait until it is ready."""
    cluster = await Cluster.of(testbed, 1, **settings)
    await cluster.coordinator(GROUP)
    (gateway,) = cluster.gateways
    await testbed.until(lambda: len(gateway.coordinators.here()) == 8)
    await testbed.until(lambda: all(shard.is_active for shard in gateway.coordinators.here()))
    return cluster, gateway


async def join(gateway: Gateway, version: int, member: str = "", instance: str | None = None, **more: Any) -> Any:
    body = {
        "group_id": GROUP,
        "member_id": member,
        "group_instance_id": instance,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"sub")],
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
    }
    return await gateway.ask(API.JOIN_GROUP, version, **body | more)


async def sync(gateway: Gateway, version: int, member: str, generation: int, share: bytes | None = None) -> Any:
    make = SyncGroupRequest.SyncGroupRequestAssignment
    return await gateway.ask(
        API.SYNC_GROUP,
        version,
        group_id=GROUP,
        member_id=member,
        generation_id=generation,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[] if share is None else [make(member_id=member, assignment=share)],
    )


# --- the coordinator


@pytest.mark.parametrize("version", versions(API.FIND_COORDINATOR))
@story
async def test_any_broker_says_where_a_group_is(testbed: Testbed, version: int) -> None:
    cluster = await Cluster.of(testbed, 3)
    answers = set()
    for gateway in cluster.gateways:
        if version < 4:
            reply = await gateway.ask(API.FIND_COORDINATOR, version, key=GROUP, key_type=0)
        else:
            whole = await gateway.ask(API.FIND_COORDINATOR, version, coordinator_keys=[GROUP, "other"], key_type=0)
            assert [each.key for each in whole.coordinators] == [GROUP, "other"]
            reply = whole.coordinators[0]
        assert reply.error_code == Code.NONE
        answers.add((reply.node_id, reply.host, reply.port))
    ((_, host, port),) = answers
    number = partition_of_group(GROUP, 8)
    view = cluster.gateways[0].host.inspect.view
    (segment,) = (s for s in view.open_segments[OFFSETS_TOPIC].values() if number in s.slots)
    assert view.brokers[segment.primary].kafka_address == f"{host}:{port}"


@story
async def test_the_first_group_comes_while_a_broker_is_being_drained(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 2)
    gateway, other = cluster.gateways
    drained = other.host.broker.id
    await gateway.host.api.call(DrainBroker(drained))
    await testbed.until(lambda: gateway.host.inspect.view.brokers[drained].draining)
    reply = await gateway.ask(API.FIND_COORDINATOR, 3, key=GROUP, key_type=0)
    assert reply.error_code == Code.NONE, reply.error_message
    segments = gateway.host.inspect.view.open_segments[OFFSETS_TOPIC].values()
    assert {s.replicas for s in segments} == {(gateway.host.broker.id,)}


@story
async def test_a_coordinator_that_died_a_moment_ago_is_not_named_but_the_next_one_is(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    group, dying = await led_by_a_follower_of_the_cluster(testbed, cluster)
    dying.host.kill()
    killed_at = testbed.loop.time()
    for gateway in cluster.living():
        reply = await gateway.ask(API.FIND_COORDINATOR, 3, key=group, key_type=0)
        assert reply.error_code == Code.NONE
        assert cluster.by_port(reply.port).host.lives
    assert testbed.loop.time() - killed_at < 1.0, "sooner than a client asks again"


@story
async def test_a_coordinator_that_is_slow_is_named_all_the_same(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    group, slow = await led_by_a_follower_of_the_cluster(testbed, cluster)
    slow.host.freeze()
    frozen_at = testbed.loop.time()
    for gateway in cluster.living():
        if gateway is not slow:
            reply = await gateway.ask(API.FIND_COORDINATOR, 3, key=group, key_type=0)
            assert cluster.by_port(reply.port) is slow
    assert testbed.loop.time() - frozen_at < 0.5
    slow.host.thaw()


@story
async def test_how_many_partitions_keep_the_groups_is_settled_with_the_first_one(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1, replace(KAFKA, kafka_internal_partitions=2))
    groups = [f"group {number}" for number in range(6)]
    for number, group in enumerate(groups):
        assert await Member(cluster, group).commit((0, number)) == [Code.NONE]
    await cluster.gateways[0].host.stop()
    host = await testbed.start(replace(KAFKA, kafka_internal_partitions=7))
    cluster.open(host)
    for number, group in enumerate(groups):
        assert await Member(cluster, group).committed() == {0: number}, "it is where it was"
    assert await Member(cluster, "a new one").commit((0, 9)) == [Code.NONE]
    assert host.inspect.view.topics[OFFSETS_TOPIC].partitions == 2


async def led_by_a_follower_of_the_cluster(testbed: Testbed, cluster: Cluster) -> tuple[str, Gateway]:
    """Return a group whose coordinator is not the cluster's leader, and that coordinator."""
    for number in range(20):
        found = await cluster.coordinator(f"group {number}")
        if found.host is not testbed.leader():
            return f"group {number}", found
    raise AssertionError("the leader coordinates all groups")


@story
async def test_there_are_no_coordinators_of_transactions_and_it_is_said_in_words(testbed: Testbed) -> None:
    _, gateway = await one(testbed)
    reply = await gateway.ask(API.FIND_COORDINATOR, 3, key="tx", key_type=1)
    refused = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert (reply.error_code, reply.node_id, reply.port) == (refused, -1, -1)
    assert "transactions are not supported" in reply.error_message
    many = await gateway.ask(API.FIND_COORDINATOR, 5, coordinator_keys=["tx"], key_type=1)
    assert many.coordinators[0].error_code == refused
    unknown = await gateway.ask(API.FIND_COORDINATOR, 5, coordinator_keys=["tx"], key_type=2)
    assert unknown.coordinators[0].error_code == Code.INVALID_REQUEST


@story
async def test_another_broker_than_the_coordinator_says_so_and_no_more(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    coordinator = await cluster.coordinator(GROUP)
    await Member(cluster, GROUP).joined()
    other = next(g for g in cluster.gateways if g is not coordinator)
    assert (await join(other, 9)).error_code == Code.NOT_COORDINATOR
    assert (await sync(other, 5, "m", 1)).error_code == Code.NOT_COORDINATOR
    beat = await other.ask(API.HEARTBEAT, 4, group_id=GROUP, member_id="m", generation_id=1)
    assert beat.error_code == Code.NOT_COORDINATOR
    leave = await other.ask(
        API.LEAVE_GROUP, 5, group_id=GROUP, members=[LeaveGroupRequest.MemberIdentity(member_id="m")]
    )
    assert leave.error_code == Code.NOT_COORDINATOR
    commit = await other.ask(
        API.OFFSET_COMMIT, 8, group_id=GROUP, member_id="", topics=[commit_of(TOPIC.name, (0, 1), (1, 2))]
    )
    assert [p.error_code for p in commit.topics[0].partitions] == [Code.NOT_COORDINATOR] * 2
    fetch = await other.ask(API.OFFSET_FETCH, 7, group_id=GROUP, topics=None, require_stable=False)
    assert fetch.error_code == Code.NOT_COORDINATOR
    described = await other.ask(API.DESCRIBE_GROUPS, 5, groups=[GROUP], include_authorized_operations=False)
    assert described.groups[0].error_code == Code.NOT_COORDINATOR
    deleted = await other.ask(API.DELETE_GROUPS, 2, groups_names=[GROUP])
    assert deleted.results[0].error_code == Code.NOT_COORDINATOR
    assert (await other.ask(API.LIST_GROUPS, 4)).groups == []


@pytest.mark.parametrize("version", versions(API.OFFSET_FETCH))
@pytest.mark.parametrize("stable", [False, True])
@story
async def test_offsets_are_not_settled_where_the_coordinator_is_not(
    testbed: Testbed, stable: bool, version: int
) -> None:
    """librdkafka then retries, in versions 7 and 9. Sarama, in 8 and 7, needs the error of its group."""
    cluster = await Cluster.of(testbed, 2)
    coordinator = await cluster.coordinator(GROUP)
    other = next(g for g in cluster.gateways if g is not coordinator)
    if version < 8:
        make = OffsetFetchRequest.OffsetFetchRequestTopic
        topics = [make(name=TOPIC.name, partition_indexes=[0, 1]), make(name="none", partition_indexes=[4])]
        found = await other.ask(API.OFFSET_FETCH, version, group_id=GROUP, topics=topics, require_stable=stable)
        nothing = await other.ask(API.OFFSET_FETCH, version, group_id=GROUP, topics=[], require_stable=stable)
    else:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        of_topic = of_group.OffsetFetchRequestTopics
        topics = [of_topic(name=TOPIC.name, partition_indexes=[0, 1]), of_topic(name="none", partition_indexes=[4])]
        groups = [of_group(group_id=GROUP, topics=topics), of_group(group_id=GROUP, topics=None)]
        reply = await other.ask(API.OFFSET_FETCH, version, groups=groups, require_stable=stable)
        found, nothing = reply.groups
    if version >= 2:
        assert found.error_code == nothing.error_code == Code.NOT_COORDINATOR
    assert nothing.topics == []
    is_told = version == 9 or (stable and version == 7)
    wanted = (-1_000, Code.UNSTABLE_OFFSET_COMMIT) if is_told else (-1, Code.NOT_COORDINATOR)
    places = [] if version == 8 else [(TOPIC.name, 0), (TOPIC.name, 1), ("none", 4)]
    assert {
        (t.name, p.partition_index): (p.committed_offset, p.error_code) for t in found.topics for p in t.partitions
    } == dict.fromkeys(places, wanted)


@story
async def test_before_anybody_asked_for_a_coordinator_there_is_none(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1)
    fetch = await cluster.gateways[0].ask(API.OFFSET_FETCH, 5, group_id=GROUP, topics=None)
    assert fetch.error_code == Code.NOT_COORDINATOR, "the other code ends consumers of Java"
    assert (await join(cluster.gateways[0], 9)).error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert (await cluster.gateways[0].ask(API.LIST_GROUPS, 4)).groups == []


# --- members, in all versions


@pytest.mark.parametrize("version", versions(API.JOIN_GROUP))
@story
async def test_joining(testbed: Testbed, version: int) -> None:
    _, gateway = await one(testbed)
    reply = await join(gateway, version)
    if version >= 4:
        assert reply.error_code == Code.MEMBER_ID_REQUIRED
        reply = await join(gateway, version, reply.member_id)
    assert (reply.error_code, reply.generation_id, reply.protocol_name) == (Code.NONE, 1, "range")
    assert reply.member_id.startswith("tests-")
    assert len(reply.member_id) == len("tests-") + 36
    assert reply.leader == reply.member_id
    assert [(m.member_id, bytes(m.metadata)) for m in reply.members] == [(reply.member_id, b"sub")]
    if version >= 7:
        assert reply.protocol_type == "consumer"


@pytest.mark.parametrize("version", versions(API.JOIN_GROUP))
@story
async def test_joining_in_a_way_that_is_refused(testbed: Testbed, version: int) -> None:
    _, gateway = await one(testbed)
    for refused, code in (
        ({"group_id": ""}, Code.INVALID_GROUP_ID),
        ({"session_timeout_ms": 1}, Code.INVALID_SESSION_TIMEOUT),
        ({"protocols": []}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"member_id": "stranger"}, Code.UNKNOWN_MEMBER_ID),
    ):
        reply = await join(gateway, version, **refused)
        assert (reply.error_code, reply.generation_id, reply.members) == (code, -1, []), refused
        assert reply.protocol_name in ("", None)


@story
async def test_names_that_are_too_long_are_refused_or_cut_and_harm_nobody(testbed: Testbed) -> None:
    cluster, gateway = await one(testbed)
    member = await Member(cluster, "quiet").joined()
    make = JoinGroupRequest.JoinGroupRequestProtocol
    for refused, code in (
        ({"instance": "i" * 250}, Code.INVALID_REQUEST),
        ({"instance": ""}, Code.INVALID_REQUEST),
        ({"protocol_type": "t" * 32_000}, Code.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": [make(name="n" * 32_000, metadata=b"")]}, Code.INCONSISTENT_GROUP_PROTOCOL),
    ):
        assert (await join(gateway, 9, **refused)).error_code == code, refused
    reply = await join(gateway, 3, client_id="\u00fc" * 16_000)
    assert reply.error_code == Code.NONE
    assert len(reply.member_id) == 255 + 37
    assert (await sync(gateway, 5, reply.member_id, reply.generation_id, b"")).error_code == Code.NONE
    assert await member.heartbeat() == Code.NONE


@pytest.mark.parametrize("version", versions(API.SYNC_GROUP))
@story
async def test_shares_are_told_and_heartbeats_answered(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    member = Member(cluster, GROUP)
    await member.join()
    reply = await sync(gateway, version, member.id, 1, b"all of it")
    assert (reply.error_code, bytes(reply.assignment)) == (Code.NONE, b"all of it")
    if version >= 5:
        assert (reply.protocol_type, reply.protocol_name) == ("consumer", "range")
    assert (await sync(gateway, version, member.id, 7)).error_code == Code.ILLEGAL_GENERATION
    assert (await sync(gateway, version, "stranger", 1)).error_code == Code.UNKNOWN_MEMBER_ID
    for beat_version in versions(API.HEARTBEAT):
        for who, generation, code in (
            (member.id, 1, Code.NONE),
            (member.id, 7, Code.ILLEGAL_GENERATION),
            ("stranger", 1, Code.UNKNOWN_MEMBER_ID),
        ):
            beat = await gateway.ask(
                API.HEARTBEAT, beat_version, group_id=GROUP, member_id=who, generation_id=generation
            )
            assert beat.error_code == code


@pytest.mark.parametrize("version", versions(API.LEAVE_GROUP))
@story
async def test_leaving(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    member = await Member(cluster, GROUP).joined()

    async def leave(*members: str) -> tuple[int, list[int]]:
        make = LeaveGroupRequest.MemberIdentity
        body = {"member_id": members[0]} if version < 3 else {"members": [make(member_id=m) for m in members]}
        reply = await gateway.ask(API.LEAVE_GROUP, version, group_id=GROUP, **body)
        return reply.error_code, [] if version < 3 else [m.error_code for m in reply.members]

    if version < 3:
        assert await leave("stranger") == (Code.UNKNOWN_MEMBER_ID, [])
        assert await leave(member.id) == (Code.NONE, [])
    else:
        assert await leave("stranger", member.id) == (Code.NONE, [Code.UNKNOWN_MEMBER_ID, Code.NONE])
    assert await member.heartbeat() == Code.UNKNOWN_MEMBER_ID


@story
async def test_a_static_member_that_starts_again_has_its_share_and_its_old_self_is_fenced(testbed: Testbed) -> None:
    cluster, _ = await one(testbed)
    first, other = Member(cluster, GROUP, "host-1"), Member(cluster, GROUP, "host-2")
    await asyncio.gather(first.joined(), other.joined())
    assert first.id.startswith("host-1-")
    again = Member(cluster, GROUP, "host-1")
    assert await again.join() == Code.NONE
    assert again.id != first.id
    assert again.generation == first.generation
    assert await again.sync() == Code.NONE
    assert again.assignment == first.assignment
    assert await first.heartbeat() == Code.FENCED_INSTANCE_ID
    assert await first.commit((0, 1)) == [Code.FENCED_INSTANCE_ID]
    assert await other.heartbeat() == Code.NONE


# --- offsets, in all versions


@pytest.mark.parametrize("version", versions(API.OFFSET_COMMIT))
@story
async def test_committing(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    member = await Member(cluster, GROUP).joined()

    async def commit(who: str, generation: int) -> list[tuple[str, list[int]]]:
        reply = await gateway.ask(
            API.OFFSET_COMMIT,
            version,
            group_id=GROUP,
            member_id=who,
            generation_id_or_member_epoch=generation,
            retention_time_ms=-1,
            topics=[
                commit_of(TOPIC.name, (0, 5), (3, 1), (2, 7), (-1, 1)),
                commit_of("none", (0, 1)),
                commit_of("a/b", (0, 1)),
            ],
        )
        return [(topic.name, [p.error_code for p in topic.partitions]) for topic in reply.topics]

    unknown = Code.UNKNOWN_TOPIC_OR_PARTITION
    for who, generation, code in (
        (member.id, 1, Code.NONE),
        (member.id, 9, Code.ILLEGAL_GENERATION),
        ("stranger", 1, Code.UNKNOWN_MEMBER_ID),
        ("", -1, Code.UNKNOWN_MEMBER_ID),
    ):
        assert await commit(who, generation) == [
            (TOPIC.name, [code, unknown, code, unknown]),
            ("none", [unknown]),
            ("a/b", [unknown]),
        ]
    assert await member.committed() == {0: 5, 2: 7}


@story
async def test_a_commit_of_a_group_that_does_not_exist(testbed: Testbed) -> None:
    _, gateway = await one(testbed)
    for version, generation, code in (
        (8, 3, Code.ILLEGAL_GENERATION),
        (9, 3, Code.GROUP_ID_NOT_FOUND),
        (8, -1, Code.NONE),
    ):
        reply = await gateway.ask(
            API.OFFSET_COMMIT,
            version,
            group_id="new",
            member_id="",
            generation_id_or_member_epoch=generation,
            topics=[commit_of(TOPIC.name, (0, 5))],
        )
        assert reply.topics[0].partitions[0].error_code == code


@story
async def test_what_is_said_beside_an_offset_has_a_bound(testbed: Testbed) -> None:
    _, gateway = await one(testbed)
    make = OffsetCommitRequest.OffsetCommitRequestTopic
    sizes = (4_096, 4_097)
    reply = await gateway.ask(
        API.OFFSET_COMMIT,
        8,
        group_id=GROUP,
        member_id="",
        topics=[
            make(
                name=TOPIC.name,
                partitions=[
                    make.OffsetCommitRequestPartition(
                        partition_index=number, committed_offset=1, committed_metadata="x" * size
                    )
                    for number, size in enumerate(sizes)
                ],
            )
        ],
    )
    errors = [p.error_code for p in reply.topics[0].partitions]
    assert errors == [Code.NONE, Code.OFFSET_METADATA_TOO_LARGE]


class WideDirectory(TopicDirectory):
    """A directory with a topic of more partitions than a test bed has brokers for."""

    def find(self, name_or_id: str | bytes) -> Any:
        return SimpleNamespace(count=MANY) if name_or_id == "wide" else super().find(name_or_id)


@story
async def test_ten_thousand_partitions_are_committed_at_once_over_many_frames_with_one_answer(testbed: Testbed) -> None:
    cluster, gateway = await one(testbed)
    member = await Member(cluster, GROUP).joined()
    directory = WideDirectory(gateway.host.inspect.view, gateway.nodes, "kafka")
    gateway.handlers.update(CommittedOffsetsHandlers(gateway.coordinators, directory).handlers())
    opened = gateway.shard(GROUP).partition.open_segment
    began = opened.log.end

    async def commit(offset: int) -> list[tuple[int, int]]:
        reply = await gateway.ask(
            API.OFFSET_COMMIT,
            8,
            group_id=GROUP,
            member_id=member.id,
            generation_id_or_member_epoch=member.generation,
            topics=[commit_of("wide", *((number, offset + number) for number in range(MANY)))],
        )
        (said,) = reply.topics
        return [(partition.partition_index, partition.error_code) for partition in said.partitions]

    held = testbed.faults.hold(StorageOp.SYNC)
    committing = [asyncio.create_task(commit(offset)) for offset in (5, 7)]
    await asyncio.sleep(1)
    assert began < opened.log.end < began + MANY, "so much of the first as there is memory for"
    assert not any(task.done() for task in committing), "no commit is acknowledged before all of it is stored"
    assert await member.heartbeat() == Code.NONE
    testbed.faults.held.clear()
    held.set()
    for task in committing:
        assert await task == [(number, Code.NONE) for number in range(MANY)]
    assert opened.log.committed == began + 2 * MANY
    assert await member.committed() == {number: 7 + number for number in range(MANY)}


@pytest.mark.parametrize("version", versions(API.OFFSET_FETCH))
@story
async def test_fetching_what_was_committed(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    await Member(cluster, GROUP).commit((0, 5), (2, 7))
    if version < 8:
        make = OffsetFetchRequest.OffsetFetchRequestTopic
        reply = await gateway.ask(
            API.OFFSET_FETCH,
            version,
            group_id=GROUP,
            topics=[make(name=TOPIC.name, partition_indexes=[0, 1]), make(name="none", partition_indexes=[0])],
        )
        topics = reply.topics
    else:
        of_group = OffsetFetchRequest.OffsetFetchRequestGroup
        make = of_group.OffsetFetchRequestTopics
        reply = await gateway.ask(
            API.OFFSET_FETCH,
            version,
            groups=[
                of_group(
                    group_id=GROUP,
                    topics=[make(name=TOPIC.name, partition_indexes=[0, 1]), make(name="none", partition_indexes=[0])],
                ),
                of_group(group_id=GROUP, topics=None),
                of_group(group_id="stranger", topics=None),
            ],
        )
        assert [(group.group_id, group.error_code) for group in reply.groups] == [
            (GROUP, Code.NONE),
            (GROUP, Code.NONE),
            ("stranger", Code.NONE),
        ]
        everything = {p.partition_index: p.committed_offset for p in reply.groups[1].topics[0].partitions}
        assert everything == {0: 5, 2: 7}
        assert reply.groups[2].topics == []
        topics = reply.groups[0].topics
    assert [
        (t.name, [(p.partition_index, p.committed_offset, p.error_code) for p in t.partitions]) for t in topics
    ] == [
        (TOPIC.name, [(0, 5, Code.NONE), (1, -1, Code.NONE)]),
        ("none", [(0, -1, Code.NONE)]),
    ]


@story
async def test_a_consumer_without_a_group_name_may_keep_offsets_as_in_kafka(testbed: Testbed) -> None:
    cluster, _ = await one(testbed)
    member = Member(cluster, "")
    assert await member.commit((0, 5)) == [Code.NONE]
    assert await member.committed() == {0: 5}
    assert await member.heartbeat() == Code.INVALID_GROUP_ID


@story
async def test_offsets_are_deleted_unless_somebody_reads_the_topic(testbed: Testbed) -> None:
    cluster, gateway = await one(testbed)
    member = Member(cluster, GROUP)
    await member.commit((0, 5), (1, 6))
    make = OffsetDeleteRequest.OffsetDeleteRequestTopic

    async def delete(group: str) -> Any:
        partitions = [make.OffsetDeleteRequestPartition(partition_index=number) for number in (0, 9)]
        return await gateway.ask(
            API.OFFSET_DELETE, 0, group_id=group, topics=[make(name=TOPIC.name, partitions=partitions)]
        )

    reply = await delete(GROUP)
    assert reply.error_code == Code.NONE
    errors = [p.error_code for p in reply.topics[0].partitions]
    assert errors == [Code.NONE, Code.UNKNOWN_TOPIC_OR_PARTITION]
    assert await member.committed() == {1: 6}
    assert (await delete("stranger")).error_code == Code.GROUP_ID_NOT_FOUND
    assert (await delete("")).error_code == Code.INVALID_GROUP_ID


# --- administration


@pytest.mark.parametrize("version", versions(API.DESCRIBE_GROUPS))
@story
async def test_describing_groups(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    member = await Member(cluster, GROUP).joined()
    reply = await gateway.ask(
        API.DESCRIBE_GROUPS, version, groups=[GROUP, "none"], include_authorized_operations=version >= 3
    )
    found, none = reply.groups
    assert (found.error_code, found.group_id, found.group_state) == (Code.NONE, GROUP, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (described,) = found.members
    assert (described.member_id, described.client_id, described.client_host) == (member.id, "tests", "/127.0.0.1")
    assert bytes(described.member_assignment) == member.id.encode()
    assert bytes(described.member_metadata) == b"\0\1subscription"
    assert (none.group_id, none.group_state) == ("none", "Dead")
    assert none.error_code == (Code.GROUP_ID_NOT_FOUND if version >= 6 else Code.NONE)
    if version >= 3:
        assert found.authorized_operations == {3, 6, 8, 10, 11}


@pytest.mark.parametrize("version", versions(API.LIST_GROUPS))
@story
async def test_listing_groups(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    await Member(cluster, GROUP).joined()
    await Member(cluster, "simple").commit((0, 1))

    async def names(**filters: list[str]) -> list[str]:
        reply = await gateway.ask(API.LIST_GROUPS, version, **filters)
        assert reply.error_code == Code.NONE
        if version >= 4:
            assert {g.group_id: g.group_state for g in reply.groups}.items() <= {
                (GROUP, "Stable"),
                ("simple", "Empty"),
            }
        if version >= 5:
            assert {g.group_type for g in reply.groups} <= {"classic"}
        assert {g.group_id: g.protocol_type for g in reply.groups}.items() <= {(GROUP, "consumer"), ("simple", "")}
        return sorted(g.group_id for g in reply.groups)

    assert await names() == [GROUP, "simple"]
    if version >= 4:
        assert await names(states_filter=["stable", "Dead"]) == [GROUP]
        assert await names(states_filter=["Empty"]) == ["simple"]
    if version >= 5:
        assert await names(types_filter=["Classic"]) == [GROUP, "simple"]
        assert await names(types_filter=["consumer"]) == []


@pytest.mark.parametrize("version", versions(API.DELETE_GROUPS))
@story
async def test_deleting_groups(testbed: Testbed, version: int) -> None:
    cluster, gateway = await one(testbed)
    member = await Member(cluster, GROUP).joined()
    await Member(cluster, "simple").commit((0, 1))

    async def delete(*groups: str) -> list[int]:
        reply = await gateway.ask(API.DELETE_GROUPS, version, groups_names=list(groups))
        assert [each.group_id for each in reply.results] == list(groups)
        return [each.error_code for each in reply.results]

    assert await delete(GROUP, "simple", "none") == [Code.NON_EMPTY_GROUP, Code.NONE, Code.GROUP_ID_NOT_FOUND]
    assert await Member(cluster, "simple").committed() == {}
    await member.leave()
    assert await delete(GROUP) == [Code.NONE]
    assert await delete(GROUP) == [Code.GROUP_ID_NOT_FOUND]


@story
async def test_offsets_survive_a_clock_that_is_days_ahead_for_a_while(testbed: Testbed) -> None:
    cluster, _ = await one(testbed)
    member = await Member(cluster, GROUP).joined()
    await member.commit((0, 100))
    await member.leave()
    testbed.hosts[0].ahead_s = 8 * 24 * 3_600.0
    await asyncio.sleep(11 * 60)
    testbed.hosts[0].ahead_s = 0.0
    assert await Member(cluster, GROUP).committed() == {0: 100}
