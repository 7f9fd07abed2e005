"""Node numbers: assigned once, kept over restarts, the same on all brokers."""

import asyncio
from collections.abc import Mapping

import pytest

from seaweedmq.codec.state.kafka import node_table_from_json, node_table_to_json
from seaweedmq.codec.state.keys import BROKERS, KAFKA_NODES
from seaweedmq.core.kafka.node_ids import with_nodes
from seaweedmq.errors import Corrupt, ResourceExhausted, StorageFailed
from seaweedmq.kafka.metadata.nodes import Nodes
from seaweedmq.model.kafka.nodes import NODE_ID_MAX, NODES_MAX, Node, NodeTable
from seaweedmq.ports import Delete, Put
from tests.broker.testbed import Testbed
from tests.doubles.memory_store import StorageOp
from tests.kafka.byte_client import ByteClient, byte_client, byte_clients


async def more_clients(testbed: Testbed, count: int) -> list[ByteClient]:
    return [await byte_client(await testbed.start()) for _ in range(count)]


def table(ids: Mapping[str, int], next_id: int) -> NodeTable:
    return NodeTable(cluster_id="c", ids=ids, next_id=next_id)


def test_new_addresses_get_the_next_numbers_up_to_the_last_of_kafka() -> None:
    first = with_nodes(table({}, 1), ["b:1", "a:1"], {"a:1", "b:1"})
    assert first == table({"a:1": 1, "b:1": 2}, 3)
    assert with_nodes(first, ["b:1"], {"b:1"}) is first
    assert with_nodes(first, ["c:1"], {"c:1"}) == table({"a:1": 1, "b:1": 2, "c:1": 3}, 4)

    with pytest.raises(ResourceExhausted, match="used up"):
        with_nodes(table({}, NODE_ID_MAX), ["a:1"], {"a:1"})


def test_a_full_table_forgets_the_oldest_that_are_gone() -> None:
    full = table({f"h:{n}": n for n in range(1, NODES_MAX + 1)}, NODES_MAX + 1)
    grown = with_nodes(full, ["new:1"], {"h:1", "new:1"})
    assert len(grown.ids) == NODES_MAX
    assert "h:1" in grown.ids
    assert "h:2" not in grown.ids
    assert grown.ids["new:1"] == NODES_MAX + 1
    with pytest.raises(ResourceExhausted, match="at most 10000 may"):
        with_nodes(full, ["new:1"], {*full.ids, "new:1"})


def test_a_table_survives_its_bytes() -> None:
    kept = table({"a:1": 1, "[::1]:9092": 7}, 9)
    assert node_table_from_json(node_table_to_json(kept)) == kept


def test_numbers_that_can_not_be_are_damage() -> None:
    for ids in (b'{"a:1":0}', b'{"a:1":5}', b'{"a:1":1,"b:1":1}', b'{"a:1":"1"}', b"[]"):
        with pytest.raises(Corrupt):
            node_table_from_json(b'{"v":1,"cluster_id":"c","next_id":5,"ids":%s}' % ids)


async def test_all_brokers_tell_the_same_numbers_and_cluster_id(testbed: Testbed) -> None:
    all_of_them = await byte_clients(testbed, 3)
    await asyncio.gather(*(each.nodes.ready() for each in all_of_them))
    first = all_of_them[0].nodes
    assert first.live() == [Node(n + 1, f"broker-{n}", 9092) for n in range(3)]
    assert len(first.cluster_id) == 22
    for each in all_of_them:
        assert (each.nodes.live(), each.nodes.cluster_id) == (first.live(), first.cluster_id)
        assert each.nodes.controller() == first.number_of(testbed.leader().broker.id)


async def test_a_broker_that_comes_back_has_its_number_again(testbed: Testbed) -> None:
    one, other = await byte_clients(testbed, 2)
    await one.nodes.ready()
    number, before = one.nodes.number_of(other.host.broker.id), other.host.broker.id
    await other.host.stop()
    await testbed.until(lambda: len(one.host.inspect.view.brokers) == 1)
    assert one.nodes.number_of(before) == number
    assert one.nodes.of_broker(before) is None
    again = await testbed.start(address=other.host.address)
    await testbed.until(lambda: len(one.host.inspect.view.brokers) == 2)
    await byte_client(again)
    assert again.broker.id != before
    assert one.nodes.number_of(again.broker.id) == number
    assert one.nodes.broker_of(number or 0) == again.broker.id


async def test_a_broker_shows_itself_even_when_no_broker_is_registered(testbed: Testbed) -> None:
    """librdkafka hangs for minutes once a reply lists no brokers, since it has no broker left to query."""
    (one,) = await byte_clients(testbed, 1)
    _, cluster, runtime = one.host.broker.ports
    nodes = Nodes(cluster.view, cluster.meta, cluster.store, runtime.env, own_address="broker-0:9092")
    (key,) = [entry.key for entry in (await one.host.meta.list(BROKERS)).entries]
    await one.host.meta.transact([], [Delete(key)])
    await testbed.until(lambda: not cluster.view.brokers)
    await nodes.ready()
    assert nodes.live() == []
    assert nodes.shown() == [Node(1, "broker-0", 9092)]


async def test_a_damaged_table_is_said_and_left_alone(testbed: Testbed) -> None:
    (one,) = await byte_clients(testbed, 1)
    await one.host.meta.transact([], [Put(KAFKA_NODES, b"not JSON")])
    with pytest.raises(Corrupt):
        await one.nodes.ready()
    entry = await one.host.meta.get(KAFKA_NODES)
    assert entry is not None
    assert entry.value == b"not JSON"


# --- numbers that the storage shows to be taken


def test_a_number_that_is_claimed_is_given_to_its_address_alone() -> None:
    claimed = {1: "a:1", 2: "b:1", 7: "c:1"}
    assert with_nodes(table({}, 1), ["b:1", "d:1"], {"b:1", "d:1"}, claimed) == table({"b:1": 2, "d:1": 8}, 9)
    restored = table({"x:1": 2}, 3)
    assert with_nodes(restored, ["b:1"], {"b:1", "x:1"}, claimed) == table({"x:1": 2, "b:1": 8}, 9), "2 is in use"
    with pytest.raises(ResourceExhausted, match="kafka/node-ids"):
        with_nodes(table({}, 1), ["d:1"], {"d:1"}, {NODE_ID_MAX: "a:1"})


async def test_brokers_get_their_numbers_back_when_etcd_has_lost_them(testbed: Testbed) -> None:
    both = await byte_clients(testbed, 2)
    for one in both:
        await one.nodes.ready()
    before = {node.host: node.id for node in both[0].nodes.live()}
    await both[0].host.meta.transact([], [Delete(KAFKA_NODES)])
    (third,) = await more_clients(testbed, 1)
    await third.nodes.ready()
    assert third.nodes.cluster_id == both[0].nodes.cluster_id
    after = {node.host: node.id for node in third.nodes.live()}
    assert after == before | {third.host.address.partition(":")[0]: 3}


async def test_a_new_broker_gets_no_number_that_was_given_after_the_backup(testbed: Testbed) -> None:
    (one,) = await byte_clients(testbed, 1)
    await one.nodes.ready()
    backup = await one.host.meta.get(KAFKA_NODES)
    assert backup is not None
    (two,) = await more_clients(testbed, 1)
    await two.nodes.ready()
    two.host.kill()
    await testbed.until(lambda: len(one.host.inspect.view.brokers) == 1)
    await one.host.meta.transact([], [Put(KAFKA_NODES, backup.value)])
    (three,) = await more_clients(testbed, 1)
    await three.nodes.ready()
    assert sorted(node.id for node in three.nodes.live()) == [1, 3]


async def test_without_the_storage_a_new_broker_has_no_number_and_others_keep_theirs(testbed: Testbed) -> None:
    (one,) = await byte_clients(testbed, 1)
    await one.nodes.ready()
    (two,) = await more_clients(testbed, 1)
    testbed.faults.failing[StorageOp.READ] = "stale handle"
    await one.nodes.ready()
    assert [node.id for node in one.nodes.live()] == [1]
    with pytest.raises(StorageFailed):
        await two.nodes.ready()
    testbed.faults.failing.clear()
    await one.nodes.ready()
    assert [node.id for node in one.nodes.live()] == [1, 2]
