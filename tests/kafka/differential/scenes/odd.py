"""Requests with empty names, empty lists, repeated topics and negative epochs, which no client sends."""

from typing import Any

from seaweedmq.kafka.wire.messages import API
from tests.kafka.differential.batches import batch
from tests.kafka.differential.play import Play
from tests.kafka.differential.scenes.groups import joining, syncing
from tests.kafka.differential.scenes.offsets import listed
from tests.kafka.differential.scenes.produce import produce
from tests.kafka.differential.scenes.reading import wanted


async def odd(play: Play) -> None:
    """Requests that name nothing, or one thing twice."""
    one, group = await play.topic("one", 2), play.name("g")
    records = batch(b"a", b"b", time_ms=play.t0_ms)
    await play.ask("produce", API.PRODUCE, 9, **produce((one, 0, records)))
    await play.ask("produce to a topic without a name", API.PRODUCE, 9, **produce(("", 0, records)))
    nothing: dict[str, Any] = {"acks": -1, "timeout_ms": 5_000, "transactional_id": None}
    nothing["topic_data"] = [{"name": one, "partition_data": []}]
    await play.ask("produce to no partition", API.PRODUCE, 9, **nothing)
    await play.ask("fetch of a topic without a name", API.FETCH, 12, **wanted(("", 0, 0)))
    await play.ask("offsets before any epoch", API.LIST_OFFSETS, 10, **listed((one, 0, -1), epoch=-2))
    of_none: dict[str, Any] = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": one, "partitions": []}]}
    await play.ask("offsets of no partition", API.LIST_OFFSETS, 7, **of_none)
    part = {"partition": 0, "current_leader_epoch": -2, "leader_epoch": 0}
    topics: list[dict[str, Any]] = [{"topic": one, "partitions": [part]}]
    await play.ask("an epoch before any", API.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=topics)
    topics = [{"name": one, "partitions": []}]
    await play.ask("delete no records", API.DELETE_RECORDS, 2, topics=topics, timeout_ms=20_000)

    alone: dict[str, Any] = {"group_id": group, "member_id": "", "group_instance_id": None}
    alone["generation_id_or_member_epoch"] = -1
    offset = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1, "committed_metadata": ""}
    await play.ask("commit", API.OFFSET_COMMIT, 8, **alone, topics=[{"name": one, "partitions": [offset]}])
    await play.ask("commit nothing", API.OFFSET_COMMIT, 8, **alone, topics=[{"name": one, "partitions": []}])
    both = {"name": one, "partition_indexes": [0, 1]}
    await play.ask("committed, twice", API.OFFSET_FETCH, 7, group_id=group, topics=[both, both], require_stable=False)
    of_none = {"name": one, "partition_indexes": []}
    await play.ask("committed, of no partition", API.OFFSET_FETCH, 7, group_id=group, topics=[of_none])
    nothing = {"group_id": group, "topics": [{"name": one, "partitions": []}]}
    await play.ask("delete no offsets", API.OFFSET_DELETE, 0, **nothing)
    await play.ask("delete the group twice", API.DELETE_GROUPS, 2, groups_names=[group, group])

    asked = await play.quietly(API.JOIN_GROUP, 9, **joining(group))
    member = await play.quietly(API.JOIN_GROUP, 9, **joining(group, asked.member_id))
    for name in ("protocol_type", "protocol_name"):
        synced: dict[str, Any] = syncing(group, member.member_id, member.generation_id)
        await play.ask(f"sync without a {name}", API.SYNC_GROUP, 5, **(synced | {name: None}))

    fields: dict[str, Any] = {"transactional_id": None, "transaction_timeout_ms": 1_000, "producer_epoch": -1}
    await play.ask("a producer id below none", API.INIT_PRODUCER_ID, 4, **fields, producer_id=-2)

    configs = [{"name": "retention.ms", "value": "1"}]
    nameless: dict[str, Any] = {"resource_type": 2, "resource_name": "", "configs": configs}
    await play.ask("alter a topic without a name", API.ALTER_CONFIGS, 2, resources=[nameless], validate_only=True)
    nameless["configs"] = [configs[0] | {"config_operation": 0}]
    await play.ask(
        "set of a topic without a name", API.INCREMENTAL_ALTER_CONFIGS, 1, resources=[nameless], validate_only=True
    )


SCENES = {"odd": odd}
