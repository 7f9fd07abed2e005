"""Lag in seconds: the age of the first record that a group has not committed."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pyarrow as pa
import pytest

from seaweedmq.client.admin.lag import Lags, lag_seconds
from seaweedmq.client.client import Client
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import Corrupt, OutOfRange, Unavailable
from seaweedmq.model.messages.groups import GroupDescription, GroupTopic, SegmentLag
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, Start, StartKind, SubscribeOpen
from seaweedmq.model.topic import TopicName
from tests.client.conftest import NOW_US, QUICK, environment
from tests.client.fake_broker import FakeBroker, FakeCluster, StoredSegment

TOPIC = "shop/orders"
AGES_S = [60.0, 30.0, 45.0]
"""Ages of the records by offset, as given by their publishers: not in order."""


@pytest.fixture
async def asking(cluster: FakeCluster) -> AsyncIterator[Cluster]:
    asking = Cluster(("fake:9000", "fake:9001"), cluster.dialer(), environment(), QUICK)
    yield asking
    await asking.close()


def group(*lags: SegmentLag, start: Start = EARLIEST, topic: str = TOPIC) -> GroupDescription:
    name = TopicName.parse(topic)
    read = GroupTopic(topic=name, generation=1, start=start, members=(), segments=lags, finished=())
    return GroupDescription(group="billing", topics=(read,))


def lag(committed: int | None, end_offset: int = 3, segment: int = 0) -> SegmentLag:
    return SegmentLag(
        segment=segment, owner="", committed=committed, end_offset=end_offset, lag_records=end_offset - (committed or 0)
    )


async def publish(client: Client, *, value: object = b"v") -> None:
    """Publish one frame, whose records have timestamps of their own."""
    table = pa.table({"at": [NOW_US - int(age * 1e6) for age in AGES_S], "value": [value] * len(AGES_S)})
    table = table.set_column(0, "at", table.column(0).cast(pa.timestamp("us", tz="UTC")))
    async with client.publisher(TOPIC) as publisher:
        await publisher.send_table(table, timestamp="at")


async def test_the_first_record_not_committed_says_how_old_it_is(client: Client, asking: Cluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client)
    for committed, seconds in ((None, 60.0), (0, 60.0), (1, 30.0), (2, 45.0), (3, 0.0)):
        assert await lag_seconds(asking, group(lag(committed))) == {TOPIC: {0: seconds}}, committed
    for start in (LATEST, Start(StartKind.OFFSET, 7), Start(StartKind.TIME, NOW_US)):
        assert await lag_seconds(asking, group(lag(None), start=start)) == {TOPIC: {0: 0.0}}, "it begins later"


async def test_records_of_one_time_have_its_age_and_a_future_one_is_no_negative_lag(
    client: Client, asking: Cluster
) -> None:
    for topic, age_s, seconds in (("shop/past", 5, 5.0), ("shop/future", -5, 0.0)):
        await client.admin.create_topic(topic)
        async with client.publisher(topic) as publisher:
            await publisher.send(b"v", timestamp=NOW_US - age_s * 1_000_000)
        assert await lag_seconds(asking, group(lag(0, 1), topic=topic)) == {topic: {0: seconds}}
    none: Lags = {}
    assert await lag_seconds(asking, GroupDescription(group="billing", topics=())) == none


async def test_sealed_segments_are_read_to_their_end(client: Client, cluster: FakeCluster, asking: Cluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client)
    [successor] = cluster.seal(TOPIC, 0)
    description = group(lag(2), lag(3, 3, successor), lag(0, 5, 99))
    found = await lag_seconds(asking, description)
    assert found == {TOPIC: {0: 45.0, successor: 0.0, 99: 0.0}}  # retention removed segment 99


async def test_what_retention_removed_does_not_count(
    client: Client, cluster: FakeCluster, asking: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker rejects an offset that retention removed; the lag is then the age of the oldest record."""
    await client.admin.create_topic(TOPIC)
    await publish(client)
    begin = FakeBroker.start_of

    def start(self: FakeBroker, stored: StoredSegment, opening: SubscribeOpen) -> int:
        if opening.start.kind is StartKind.OFFSET:
            raise OutOfRange("retention removed it")
        return begin(self, stored, opening)

    monkeypatch.setattr(FakeBroker, "start_of", start)
    assert await lag_seconds(asking, group(lag(2))) == {TOPIC: {0: 60.0}}


async def test_many_segments_of_a_topic_with_a_schema(client: Client, asking: Cluster) -> None:
    await client.admin.create_topic(TOPIC, segments=40)
    for _ in range(40):
        await publish(client, value=7)
    lags = await lag_seconds(asking, group(*(lag(0, 3, n) for n in range(40))))
    stats = await client.admin.topic_stats(TOPIC)
    assert lags == {TOPIC: {s.segment: 60.0 if s.high_watermark else 0.0 for s in stats}}
    assert sum(1 for s in stats if s.high_watermark) > 1


async def test_a_segment_out_of_reach_is_named(client: Client, cluster: FakeCluster, asking: Cluster) -> None:
    await client.admin.create_topic(TOPIC)
    await publish(client)
    cluster.kill("b-0")
    with pytest.raises(Unavailable, match=f"{TOPIC}#0"):
        await lag_seconds(asking, group(lag(0), lag(0, 3, 99)))


async def test_all_streams_are_closed_before_an_error_is_raised(
    client: Client, asking: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[int] = []

    async def subscribe(_: FakeBroker, requests: AsyncIterator[SubscribeOpen]) -> AsyncIterator[Any]:
        if (opening := await anext(requests)).segment == 0:
            raise Corrupt("segment 0 is damaged")
        try:
            yield await asyncio.Event().wait()
        finally:
            await asyncio.sleep(1)
            closed.append(opening.segment)

    monkeypatch.setattr(FakeBroker, "subscribe", subscribe)
    await client.admin.create_topic(TOPIC, segments=2)
    with pytest.raises(Corrupt):
        await lag_seconds(asking, group(lag(0, 3, 1), lag(0, 3, 0)))
    assert closed == [1]
