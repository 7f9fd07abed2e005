"""DeleteRecords: where partitions begin afterwards, and what can not be deleted."""

from typing import Any

import pytest

from seaweedmq.kafka.admin.changes import TopicChanges
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.messages import API, DeleteRecordsRequest
from seaweedmq.model.topic import Scaling, TopicName
from tests.broker.bed import Bed, story
from tests.kafka.office import Office, offices

ORDERS = TopicName("kafka", "orders")
ALL = -1


async def office_with_records(bed: Bed, **settings: Any) -> Office:
    """Of three partitions the first two hold ten and five records."""
    [office] = await offices_with_records(bed, 1, **settings)
    return office


async def offices_with_records(bed: Bed, brokers: int, **settings: Any) -> list[Office]:
    office, *others = await offices(bed, brokers)
    await bed.topic(office.host, ORDERS, partitions=3, **settings)
    for partition, count in ((0, 10), (1, 5)):
        primary = await bed.primary(office.host, ORDERS, partition)
        publisher = await primary.publisher(partition + 1, name=ORDERS, segment=partition)
        await publisher.store(1, count, slots=(partition, partition), histogram=(0,) * 16)
    return [office, *others]


async def delete(office: Office, before: dict[int, int], name: str = "orders", version: int = 2) -> dict[int, Any]:
    """Partition -> where it begins, or the code."""
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    partitions = [topic.DeleteRecordsPartition(partition_index=p, offset=offset) for p, offset in before.items()]
    reply = await office.ask(
        API.DELETE_RECORDS, version, topics=[topic(name=name, partitions=partitions)], timeout_ms=30_000
    )
    (result,) = reply.topics
    assert result.name == name
    return {p.partition_index: Code(p.error_code) if p.error_code else p.low_watermark for p in result.partitions}


def begins(office: Office) -> tuple[int, ...]:
    return office.host.inspect.view.topics[ORDERS].low_watermarks


@story
@pytest.mark.parametrize("version", [0, 1, 2])
async def test_partitions_begin_at_the_offset(bed: Bed, version: int) -> None:
    office = await office_with_records(bed)
    assert await delete(office, {0: 4, 1: 5}, version=version) == {0: 4, 1: 5}
    assert begins(office) == (4, 5)


@story
async def test_minus_one_is_all_that_is_committed(bed: Bed) -> None:
    office = await office_with_records(bed)
    assert await delete(office, {0: ALL, 2: ALL}) == {0: 10, 2: 0}
    assert begins(office) == (10,)


@story
async def test_partitions_never_begin_earlier_again(bed: Bed) -> None:
    office = await office_with_records(bed)
    await delete(office, {0: 7})
    assert await delete(office, {0: 3}) == {0: 7}


@story
async def test_a_topic_that_is_named_again_is_changed_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    office = await office_with_records(bed)
    calls, delete_records = [], TopicChanges.delete_records

    async def counted(self: TopicChanges, topic: Any, before: Any, timeout_s: float) -> Any:
        calls.append(dict(before))
        return await delete_records(self, topic, before, timeout_s)

    monkeypatch.setattr(TopicChanges, "delete_records", counted)
    topic = DeleteRecordsRequest.DeleteRecordsTopic
    named = [
        topic(name="orders", partitions=[topic.DeleteRecordsPartition(partition_index=partition, offset=offset)])
        for partition, offset in ((0, 9), (1, 2), (0, 4))
    ]
    reply = await office.ask(API.DELETE_RECORDS, 2, topics=named, timeout_ms=30_000)
    assert calls == [{0: 4, 1: 2}]
    assert [(t.name, [p.low_watermark for p in t.partitions]) for t in reply.topics] == [("orders", [4, 2])]


@story
async def test_the_leader_of_a_partition_deletes_its_records_and_no_other_broker(bed: Bed) -> None:
    opened = await offices_with_records(bed, 3)
    asked, begin = {0: 4, 1: ALL, 2: 0}, {0: 4, 1: 5, 2: 0}
    for office in opened:
        mine = {p for p in asked if await bed.primary(office.host, ORDERS, p) is office.host}
        said = await delete(office, asked)
        assert said == {p: begin[p] if p in mine else Code.NOT_LEADER_OR_FOLLOWER for p in asked}
    assert begins(opened[0]) == (4, 5)


@story
async def test_what_can_not_be_deleted_harms_no_other_partition(bed: Bed) -> None:
    office = await office_with_records(bed)
    assert await delete(office, {0: 11, 1: 2, 3: 0, -1: 0, 2: -5}) == {
        0: Code.OFFSET_OUT_OF_RANGE,
        1: 2,
        3: Code.UNKNOWN_TOPIC_OR_PARTITION,
        -1: Code.UNKNOWN_TOPIC_OR_PARTITION,
        2: Code.OFFSET_OUT_OF_RANGE,
    }
    assert begins(office) == (0, 2)


@story
async def test_records_of_some_topics_stay(bed: Bed) -> None:
    office = await office_with_records(bed, configs=(("cleanup.policy", "compact"),))
    await bed.topic(office.host, TopicName("kafka", "ring"), segments=2, scaling=Scaling.FIXED)
    assert await delete(office, {0: 4}) == {0: Code.POLICY_VIOLATION}
    assert await delete(office, {0: 0}, "ring") == {0: Code.POLICY_VIOLATION}
    assert await delete(office, {0: 0}, "returns") == {0: Code.UNKNOWN_TOPIC_OR_PARTITION}
    assert begins(office) == ()
