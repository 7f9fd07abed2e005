"""Administration from programs: the calls that brokers get, and the arguments that the client rejects itself."""

import asyncio
import inspect
from collections.abc import Coroutine, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

import pytest

from seaweedmq.client.admin.admin import Admin
from seaweedmq.client.blocking import admin as sync_admin
from seaweedmq.client.blocking.background import Background
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import InvalidArgument, StaleMetadata
from seaweedmq.model.messages.calls import (
    AlterTopic,
    Call,
    CreateTopics,
    DeleteGroup,
    DeleteKafkaGroup,
    DeleteTopic,
    DescribeGroup,
    DescribeKafkaGroup,
    ListGroups,
    ListKafkaGroups,
    MergeSegments,
    MoveSegment,
    Rebalance,
    ResetGroup,
    ResetKafkaGroup,
    SealSegment,
    SplitSegment,
)
from seaweedmq.model.messages.subscribe import LATEST, Start, StartKind
from seaweedmq.model.topic import TopicChange, TopicName
from seaweedmq.ports import BrokerApi, Dialer
from tests.client.conftest import QUICK, environment

NAME = TopicName("shop", "orders")


class Answer(str):
    """An answer that also passes for the description of a topic."""

    __slots__ = ()
    addresses: Mapping[str, str] = {}
    more_above = None
    uid = 7

    @property
    def topic(self) -> "Answer":
        return self


class Recorder:
    """A broker that answers every call with its name, or with an error, and records the call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.error: Exception | None = None

    async def call(self, request: Call[Any]) -> Answer:
        self.calls.append(request)
        if self.error is not None:
            raise self.error
        answer = Answer(type(request).__name__)
        return (answer,) * len(request.specs) if isinstance(request, CreateTopics) else answer

    def dial(self, address: str) -> BrokerApi:
        return cast(BrokerApi, self)


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def admin(recorder: Recorder) -> Admin:
    return Admin(Cluster(("fake:9000",), cast(Dialer, recorder), environment(), QUICK))


async def test_a_segment_that_is_sealed_is_told_at_once(admin: Admin, recorder: Recorder) -> None:
    """A repeated call would find the segment already sealed."""
    recorder.error = StaleMetadata("shop/orders#3 is sealed: use segments 4, 5 instead")
    with pytest.raises(StaleMetadata, match="segments 4, 5"):
        await admin.split_segment("shop/orders", 3)
    assert len(recorder.calls) == 1


async def test_what_can_not_be_meant_is_refused_before_a_broker_is_asked(admin: Admin, recorder: Recorder) -> None:
    for name in ("", "a b", "x" * 101, "a/b", ".."):
        for call in (admin.describe_group, admin.delete_group, partial(admin.reset_group, topic=NAME, to="latest")):
            with pytest.raises(InvalidArgument, match="group name"):
                await call(name)
    with pytest.raises(InvalidArgument, match="NAMESPACE/NAME"):
        await admin.split_segment("orders", 3)
    with pytest.raises(InvalidArgument, match='is not "earliest"'):
        await admin.reset_group("billing", "shop/orders", "first")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no broker to move shop/orders#3 to"):
        await admin.move_segment("shop/orders", 3, [])
    assert recorder.calls == []


async def test_a_topic_gets_its_targets(admin: Admin, recorder: Recorder) -> None:
    await admin.create_topic("shop/orders", target_bytes_per_s=1e6)
    await admin.alter_topic("shop/orders", target_bytes_per_s=0, target_records_per_s=5e3)
    created, change = recorder.calls[0].specs[0], recorder.calls[2].change
    assert (created.target_bytes_per_s, created.target_records_per_s) == (1e6, None)
    assert (change.target_bytes_per_s, change.target_records_per_s) == (0, 5e3)


@pytest.mark.parametrize("name", ["retention", "retention_bytes", "target_bytes_per_s", "target_records_per_s"])
async def test_a_limit_that_no_call_can_carry_is_rejected_by_name(admin: Admin, recorder: Recorder, name: str) -> None:
    for value in (10**400, 1 << 63, float("inf"), float("nan")):
        limit: dict[str, Any] = {name: value}
        with pytest.raises(InvalidArgument, match=f"^{name} is not a number up to 9223372036854775807: use a smaller"):
            await admin.create_topic("shop/orders", **limit)
        with pytest.raises(InvalidArgument, match=f"^{name} is not a number up to"):
            await admin.alter_topic("shop/orders", **limit)
    assert recorder.calls == []


async def test_a_topic_is_told_from_a_later_one_of_its_name(admin: Admin, recorder: Recorder) -> None:
    """The client queries the topic's uid from the leader, and every attempt names that uid."""
    await admin.delete_topic("shop/orders")
    await admin.alter_topic("shop/orders", retention=60)
    nothing = TopicChange()
    assert recorder.calls == [
        AlterTopic(NAME, nothing),
        DeleteTopic(NAME, 7),
        AlterTopic(NAME, nothing),
        AlterTopic(NAME, TopicChange(retention_s=60.0), 7),
    ]


def test_the_synchronous_face_offers_the_same() -> None:
    def methods(kind: type) -> dict[str, list[Any]]:
        return {
            name: list(inspect.signature(method).parameters.values())
            for name, method in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_")
        }

    assert methods(sync_admin.Admin) == methods(Admin)


class Direct:
    """A stand-in for the background thread that runs coroutines in the calling thread."""

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run(work)


CALLS: list[tuple[str, tuple[Any, ...], Call[Any]]] = [
    ("split_segment", ("shop/orders", 3), SplitSegment(NAME, 3, None)),
    ("split_segment", (NAME, 3, 100), SplitSegment(NAME, 3, 100)),
    ("merge_segments", ("shop/orders", 3, 4), MergeSegments(NAME, 3, 4)),
    ("seal_segment", ("shop/orders", 3), SealSegment(NAME, 3)),
    ("move_segment", ("shop/orders", 3, ["b-1", "127.0.0.1:17777"]), MoveSegment(NAME, 3, ("b-1", "127.0.0.1:17777"))),
    ("move_segment", ("shop/orders", 3, "b-1"), MoveSegment(NAME, 3, ("b-1",))),
    ("rebalance", (), Rebalance()),
    ("list_groups", (), ListGroups()),
    ("describe_group", ("billing",), DescribeGroup("billing")),
    ("reset_group", ("billing", "shop/orders", "latest"), ResetGroup("billing", NAME, LATEST, False)),
    ("reset_group", ("billing", NAME, 7, True), ResetGroup("billing", NAME, Start(StartKind.OFFSET, 7), True)),
    (
        "reset_group",
        ("billing", NAME, datetime(2026, 1, 31, tzinfo=UTC)),
        ResetGroup("billing", NAME, Start(StartKind.TIME, 1_769_817_600_000_000), False),
    ),
    ("delete_group", ("billing", True), DeleteGroup("billing", True)),
    ("list_kafka_groups", (), ListKafkaGroups()),
    ("describe_kafka_group", ("any text, as in Kafka",), DescribeKafkaGroup("any text, as in Kafka")),
    (
        "reset_kafka_group",
        ("billing", "kafka/orders", "latest"),
        ResetKafkaGroup("billing", TopicName("kafka", "orders"), LATEST),
    ),
    ("delete_kafka_group", ("billing",), DeleteKafkaGroup("billing")),
]


def test_a_broker_gets_what_either_face_is_asked_for(recorder: Recorder) -> None:
    core = Admin(Cluster(("fake:9000",), cast(Dialer, recorder), environment(), QUICK))
    admin = sync_admin.Admin(core, cast(Background, Direct()))
    for name, arguments, expected in CALLS:
        recorder.calls.clear()
        asyncio.run(getattr(core, name)(*arguments))
        getattr(admin, name)(*arguments)
        assert recorder.calls == [expected] * 2, name
    recorder.calls.clear()
    admin.create_topic(NAME, target_bytes_per_s=1.0, target_records_per_s=2.0)
    admin.alter_topic(NAME, target_bytes_per_s=3.0, target_records_per_s=4.0)
    spec, change = recorder.calls[0].specs[0], recorder.calls[-1].change
    assert (spec.target_bytes_per_s, spec.target_records_per_s) == (1.0, 2.0)
    assert (change.target_bytes_per_s, change.target_records_per_s) == (3.0, 4.0)
