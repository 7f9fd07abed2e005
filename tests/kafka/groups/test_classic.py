"""Group requests in every supported version, on real brokers in virtual time."""

import asyncio
from dataclasses import replace
from itertools import product
from types import SimpleNamespace
from typing import Any

from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.kafka.groups.committed_offsets import CommittedOffsetsHandlers
from seaweedmq.kafka.metadata.topic_directory import TopicDirectory
from seaweedmq.kafka.wire.messages import API
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.calls import DrainBroker
from tests.broker.testbed import Testbed
from tests.doubles.memory_store import StorageOp
from tests.kafka.byte_client import versions
from tests.kafka.differential.scenes.groups import joining, syncing
from tests.kafka.group_testbed import KAFKA, OFFSETS_TOPIC, TOPIC, Cluster, Gateway, Member, commit_of

GROUP = "billing"
MANY = 10_000


async def one(testbed: Testbed, **settings: Any) -> tuple[Cluster, Gateway]:
    """Start a broker that coordinates all groups, and wait until it is ready."""
    cluster = await Cluster.of(testbed, 1, **settings)
    await cluster.coordinator(GROUP)
    (gateway,) = cluster.gateways
    await testbed.until(lambda: len(gateway.coordinators.here()) == 8)
    await testbed.until(lambda: all(shard.is_active for shard in gateway.coordinators.here()))
    return cluster, gateway


# --- the coordinator


async def test_any_broker_says_where_a_group_is(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    answers = set()
    for gateway, version in product(cluster.gateways, versions(API.FIND_COORDINATOR)):
        if version < 4:
            reply = await gateway.ask(API.FIND_COORDINATOR, version, key=GROUP, key_type=0)
        else:
            whole = await gateway.ask(API.FIND_COORDINATOR, version, coordinator_keys=[GROUP, "other"], key_type=0)
            assert [each.key for each in whole.coordinators] == [GROUP, "other"]
            reply = whole.coordinators[0]
        assert reply.error_code == Code.NONE, version
        answers.add((reply.node_id, reply.host, reply.port))
    ((_, host, port),) = answers
    number = partition_of_group(GROUP, 8)
    view = cluster.gateways[0].host.inspect.view
    (segment,) = (s for s in view.open_segments[OFFSETS_TOPIC].values() if number in s.slots)
    assert view.brokers[segment.primary].kafka_address == f"{host}:{port}"


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


async def test_another_broker_than_the_coordinator_says_so_and_no_more(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 3)
    coordinator = await cluster.coordinator(GROUP)
    await Member(cluster, GROUP).joined()
    other = next(g for g in cluster.gateways if g is not coordinator)
    assert (await other.ask(API.JOIN_GROUP, 9, **joining(GROUP))).error_code == Code.NOT_COORDINATOR
    assert (await other.ask(API.SYNC_GROUP, 5, **syncing(GROUP, "m", 1))).error_code == Code.NOT_COORDINATOR
    beat = await other.ask(API.HEARTBEAT, 4, group_id=GROUP, member_id="m", generation_id=1)
    assert beat.error_code == Code.NOT_COORDINATOR
    leave = await other.ask(API.LEAVE_GROUP, 5, group_id=GROUP, members=[{"member_id": "m"}])
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


async def test_offsets_are_not_settled_where_the_coordinator_is_not(testbed: Testbed) -> None:
    """librdkafka then retries, in versions 7 and 9. Sarama, in 8 and 7, needs the error of its group."""
    cluster = await Cluster.of(testbed, 2)
    coordinator = await cluster.coordinator(GROUP)
    other = next(g for g in cluster.gateways if g is not coordinator)
    for version, stable in product(versions(API.OFFSET_FETCH), (False, True)):
        found, nothing = await fetched(other, version, stable, {TOPIC.name: [0, 1], "none": [4]}, {})
        if version >= 2:
            assert found.error_code == nothing.error_code == Code.NOT_COORDINATOR, version
        assert nothing.topics == []
        is_told = version == 9 or (stable and version == 7)
        wanted = (-1_000, Code.UNSTABLE_OFFSET_COMMIT) if is_told else (-1, Code.NOT_COORDINATOR)
        places = [] if version == 8 else [(TOPIC.name, 0), (TOPIC.name, 1), ("none", 4)]
        assert {
            (t.name, p.partition_index): (p.committed_offset, p.error_code) for t in found.topics for p in t.partitions
        } == dict.fromkeys(places, wanted), (version, stable)


async def fetched(gateway: Gateway, version: int, stable: bool, *wanted: dict[str, list[int]]) -> list[Any]:
    """Return the replies about these partitions of the group; without any, about none, from version 8 on about all."""
    asked = [[{"name": name, "partition_indexes": p} for name, p in names.items()] for names in wanted]
    if version < 8:
        more = {"group_id": GROUP, "require_stable": stable}
        return [await gateway.ask(API.OFFSET_FETCH, version, topics=topics, **more) for topics in asked]
    groups = [{"group_id": GROUP, "topics": topics or None} for topics in asked]
    return list((await gateway.ask(API.OFFSET_FETCH, version, groups=groups, require_stable=stable)).groups)


async def test_before_anybody_asked_for_a_coordinator_there_is_none(testbed: Testbed) -> None:
    cluster = await Cluster.of(testbed, 1)
    fetch = await cluster.gateways[0].ask(API.OFFSET_FETCH, 5, group_id=GROUP, topics=None)
    assert fetch.error_code == Code.NOT_COORDINATOR, "the other code ends consumers of Java"
    joined = await cluster.gateways[0].ask(API.JOIN_GROUP, 9, **joining(GROUP))
    assert joined.error_code == Code.COORDINATOR_NOT_AVAILABLE
    assert (await cluster.gateways[0].ask(API.LIST_GROUPS, 4)).groups == []


async def test_listed_groups_have_a_requested_state_and_a_requested_type(testbed: Testbed) -> None:
    cluster, gateway = await one(testbed)
    await Member(cluster, GROUP).joined()
    for states, types in product(([], ["Stable"], ["Dead"]), ([], ["Classic"], ["share"])):
        reply = await gateway.ask(API.LIST_GROUPS, 5, states_filter=states, types_filter=types)
        wanted = [] if "Dead" in states or "share" in types else [GROUP]
        assert [listed.group_id for listed in reply.groups] == wanted, (states, types)


# --- long names and large commits


async def test_a_client_id_that_is_long_is_cut_in_the_id_of_its_member(testbed: Testbed) -> None:
    _, gateway = await one(testbed)
    reply = await gateway.ask(API.JOIN_GROUP, 3, client_id="\u00fc" * 16_000, **joining(GROUP))
    assert (reply.error_code, len(reply.member_id)) == (Code.NONE, 255 + 37)


class WideDirectory(TopicDirectory):
    """A directory with a topic of more partitions than a test bed has brokers for."""

    def find(self, name_or_id: str | bytes) -> Any:
        return SimpleNamespace(count=MANY) if name_or_id == "wide" else super().find(name_or_id)


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


async def test_offsets_survive_a_clock_that_is_days_ahead_for_a_while(testbed: Testbed) -> None:
    cluster, _ = await one(testbed)
    member = await Member(cluster, GROUP).joined()
    await member.commit((0, 100))
    await member.leave()
    testbed.hosts[0].ahead_s = 8 * 24 * 3_600.0
    await asyncio.sleep(11 * 60)
    testbed.hosts[0].ahead_s = 0.0
    assert await Member(cluster, GROUP).committed() == {0: 100}
