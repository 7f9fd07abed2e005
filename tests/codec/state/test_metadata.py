"""Keys and values in etcd, of the cluster and of groups: golden bytes, round trips, and foreign keys."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_metadata import committed_from_json, committed_to_json, group_from_json, group_to_json
from seaweedmq.codec.state.metadata import (
    broker_from_json,
    broker_to_json,
    deletion_from_json,
    deletion_to_json,
    low_watermarks_from_json,
    low_watermarks_to_json,
    segment_from_json,
    segment_to_json,
    topic_from_json,
    topic_to_json,
)
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.group_record import CommittedOffset, GroupRecord, MemberRecord, SegmentOwner
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.ring import RING_SLOTS_MAX, KeyRange
from seaweedmq.model.segment import ProducerSequence, Segment, SegmentState
from seaweedmq.model.topic import PARTITIONS_MAX, Deletion, Durability, LowWatermarks, Scaling, Topic, TopicName
from seaweedmq.model.topic_settings import configs_of

UINTS = st.integers(0, 2**64 - 1)
NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
TOPIC_NAMES = st.builds(TopicName, NAMES, NAMES)
TEXTS = st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20)
FLOATS = st.floats(0, allow_infinity=False)
TOPICS = st.builds(
    Topic,
    name=TOPIC_NAMES,
    uid=UINTS,
    replicas=st.integers(1, 9),
    durability=st.sampled_from(Durability),
    scaling=st.sampled_from(Scaling),
    schema=st.none() | st.binary(max_size=50),
    **dict.fromkeys(("retention_s", "target_bytes_per_s", "target_records_per_s"), st.none() | FLOATS),
    retention_bytes=st.none() | UINTS,
    **dict.fromkeys(("next_segment", "created_us"), UINTS),
    segments_min=st.integers(1, 4096),
    pruned=st.sets(st.integers(0, 30)).map(lambda ids: IdRanges().including(ids)),
    partitions=st.none() | st.integers(1, PARTITIONS_MAX),
    configs=st.dictionaries(NAMES, st.text(max_size=20), max_size=3).map(configs_of),
)


@st.composite
def segments(draw: st.DrawFn) -> Segment:
    lo = draw(st.integers(0, RING_SLOTS_MAX - 1))
    start = draw(st.integers(0, 2**63))
    sealed = draw(st.booleans())
    sequences = st.builds(ProducerSequence, producer_id=UINTS, producer_epoch=UINTS, next_sequence=UINTS)
    return Segment(
        topic=draw(TOPIC_NAMES),
        id=draw(st.integers(0, 10**10 - 1)),
        slots=KeyRange(lo, draw(st.integers(lo + 1, RING_SLOTS_MAX))),
        epoch=draw(st.integers(1, 2**64 - 1)),
        state=SegmentState.SEALED if sealed else SegmentState.OPEN,
        replicas=tuple(draw(st.lists(TEXTS, min_size=1, max_size=4))),
        predecessors=tuple(draw(st.lists(UINTS, max_size=3))),
        successors=tuple(draw(st.lists(UINTS, max_size=3))),
        start_offset=start,
        end_offset=draw(st.integers(start, 2**64 - 1)) if sealed else None,
        sequences=tuple(draw(st.lists(sequences, max_size=3))),
        opened_us=draw(UINTS),
        sealed_us=draw(UINTS),
        problem=draw(st.just("") | TEXTS),
        sequences_complete=draw(st.booleans()),
    )


BROKERS = st.builds(
    BrokerInfo,
    **dict.fromkeys(("id", "address", "version"), TEXTS),
    **dict.fromkeys(("started_us", "pid"), UINTS),
    **{"draining": st.booleans(), "kafka_address": st.just("") | TEXTS},
)
MARKS = st.builds(LowWatermarks, name=TOPIC_NAMES, uid=UINTS, offsets=st.lists(UINTS, max_size=5).map(tuple))
COUNTS = st.dictionaries(UINTS, st.integers(1, 1_000), max_size=5)
MEMBERS = st.builds(MemberRecord, incarnation=UINTS, client=TEXTS, former=st.lists(UINTS, max_size=8).map(tuple))
COMMITTED = st.builds(CommittedOffset, offset=UINTS, deliveries=COUNTS, at_us=UINTS)


@st.composite
def groups(draw: st.DrawFn) -> GroupRecord:
    members = draw(st.dictionaries(NAMES, MEMBERS, max_size=4))
    member = st.sampled_from(sorted(members) or ["m"])
    revoking = st.builds(SegmentOwner, member, UINTS, st.just(True), st.booleans())
    owner = st.builds(SegmentOwner, member, UINTS) | revoking
    return GroupRecord(
        topic_uid=draw(UINTS),
        start=draw(st.builds(Start, st.sampled_from(StartKind), UINTS)),
        horizon=draw(UINTS),
        generation=draw(UINTS),
        members=members,
        owners=draw(st.dictionaries(UINTS, owner, max_size=5)) if members else {},
        crashes=draw(COUNTS),
    )


ORDERS = TopicName("shop", "orders")
GOLDEN_TOPIC = Topic(
    name=ORDERS,
    uid=77,
    replicas=2,
    durability=Durability.REPLICATED,
    scaling=Scaling.AUTO,
    schema=b"\x00\xff",
    retention_s=604800.0,
    retention_bytes=None,
    next_segment=5,
    created_us=1_700_000_000_000_000,
    target_bytes_per_s=1e6,
    target_records_per_s=None,
    segments_min=4,
    pruned=IdRanges(((0, 3), (4, 5))),
)
GOLDEN_SEGMENT = Segment(
    topic=ORDERS,
    id=4,
    slots=KeyRange(0, 32768),
    epoch=3,
    state=SegmentState.SEALED,
    replicas=("b-1", "b-2"),
    predecessors=(1, 2),
    successors=(5,),
    start_offset=10,
    end_offset=42,
    sequences=(ProducerSequence(producer_id=9, producer_epoch=1, next_sequence=32),),
    sequences_complete=True,
    opened_us=1_700_000_000_000_001,
    sealed_us=1_700_000_000_000_002,
)
GOLDEN_BROKER = BrokerInfo(id="b-1", address="127.0.0.1:17777", started_us=1, pid=2, version="0.1.0")
VOID = SegmentOwner("m-1", 8, revoking=True, void=True)
OWNERS = (SegmentOwner("m-1", 8), SegmentOwner("m-1", 9, revoking=True), VOID)
GOLDEN_GROUP = GroupRecord(
    topic_uid=77,
    start=Start(StartKind.TIME, 1_700_000_000_000_000),
    horizon=5,
    generation=9,
    members={"m-1": MemberRecord(incarnation=3, client="host:17", former=(2, 1))},
    owners=dict(zip((4, 5, 6), OWNERS, strict=True)),
    crashes={4: 2},
)
GOLDEN_COMMITTED = CommittedOffset(offset=42, deliveries={43: 2}, at_us=1_700_000_000_000_001)


def test_a_segment_without_the_flag_does_not_pass_for_one_that_names_all_producers() -> None:
    data = segment_to_json(GOLDEN_SEGMENT).replace(b',"sequences_complete":true', b"")
    assert b"complete" not in data
    assert not segment_from_json(data).sequences_complete


def test_the_bytes_of_the_values_are_these() -> None:
    assert topic_to_json(GOLDEN_TOPIC) == (
        b'{"v":1,"name":"shop/orders","uid":77,"replicas":2,"durability":"replicated","scaling":"auto","schema":"AP8=",'
        b'"retention_s":604800.0,"retention_bytes":null,"next_segment":5,"created_us":1700000000000000,'
        b'"target_bytes_per_s":1000000.0,"target_records_per_s":null,"segments_min":4,'
        b'"pruned":[[0,3],[4,5]]}'
    )
    assert segment_to_json(GOLDEN_SEGMENT) == (
        b'{"v":1,"topic":"shop/orders","id":4,"slots":[0,32768],"epoch":3,"state":"sealed","replicas":["b-1","b-2"],'
        b'"predecessors":[1,2],"successors":[5],"start_offset":10,"end_offset":42,"opened_us":1700000000000001,'
        b'"sealed_us":1700000000000002,"sequences":[[9,1,32]],"sequences_complete":true}'
    )
    assert deletion_from_json(b'{"v":1,"name":"shop/orders","uid":77}') == Deletion(name=ORDERS, uid=77)
    deletion = Deletion(name=ORDERS, uid=77, primaries=("b-1", "b-2"))
    assert deletion_to_json(deletion) == b'{"v":1,"name":"shop/orders","uid":77,"primaries":["b-1","b-2"]}'
    assert broker_to_json(GOLDEN_BROKER) == (
        b'{"v":1,"id":"b-1","address":"127.0.0.1:17777","started_us":1,"pid":2,"version":"0.1.0","draining":false}'
    )
    listening = replace(GOLDEN_BROKER, kafka_address="127.0.0.1:9092")
    assert broker_to_json(listening) == (
        b'{"v":1,"id":"b-1","address":"127.0.0.1:17777","started_us":1,"pid":2,"version":"0.1.0","draining":false,'
        b'"kafka_address":"127.0.0.1:9092"}'
    )
    assert group_to_json(GOLDEN_GROUP) == (
        b'{"v":1,"topic_uid":77,"start":["time",1700000000000000],"horizon":5,"generation":9,'
        b'"members":{"m-1":[3,"host:17",[2,1]]},"owners":{"4":["m-1",8,0],"5":["m-1",9,1],"6":["m-1",8,2]},'
        b'"crashes":{"4":2}}'
    )
    committed = committed_to_json(GOLDEN_COMMITTED)
    assert committed == b'{"v":1,"offset":42,"deliveries":{"43":2},"at_us":1700000000000001}'


def test_the_keys_are_these() -> None:
    assert (keys.LEADER, keys.broker_key("b-1")) == ("/seaweedmq/leader", "/seaweedmq/brokers/b-1")
    assert keys.left_key("b-1") == "/seaweedmq/left/b-1"
    assert keys.address_key("127.0.0.1:17777") == "/seaweedmq/addresses/127.0.0.1:17777"
    assert keys.kafka_address_key("127.0.0.1:9092") == "/seaweedmq/addresses/kafka/127.0.0.1:9092"
    assert keys.topic_key(ORDERS) == "/seaweedmq/topics/shop/orders"
    assert keys.segment_key(ORDERS, 4) == "/seaweedmq/segments/shop/orders/0000000004"
    assert keys.low_watermarks_key(ORDERS) == "/seaweedmq/low/shop/orders"
    assert keys.deletion_key(ORDERS) == "/seaweedmq/deletions/shop/orders"
    assert keys.segments_prefix(ORDERS) == "/seaweedmq/segments/shop/orders/"
    assert keys.group_key(ORDERS, "billing") == "/seaweedmq-groups/state/shop/orders/billing"
    assert keys.offset_key(ORDERS, "billing", 4) == "/seaweedmq-groups/offsets/shop/orders/billing/0000000004"


@pytest.mark.parametrize(
    ("values", "write", "read"),
    [
        (TOPICS, topic_to_json, topic_from_json),
        (segments(), segment_to_json, segment_from_json),
        (BROKERS, broker_to_json, broker_from_json),
        (st.builds(Deletion, name=TOPIC_NAMES, uid=UINTS), deletion_to_json, deletion_from_json),
        (MARKS, low_watermarks_to_json, low_watermarks_from_json),
        (groups(), group_to_json, group_from_json),
        (COMMITTED, committed_to_json, committed_from_json),
    ],
    ids=["topic", "segment", "broker", "deletion", "low watermarks", "group", "committed offset"],
)
@given(data=st.data())
def test_a_value_comes_back(data: st.DataObject, values: Any, write: Any, read: Any) -> None:
    value = data.draw(values)
    assert read(write(value)) == value


def test_low_watermarks_are_no_part_of_the_topics_own_record() -> None:
    marks = LowWatermarks(name=ORDERS, uid=77, offsets=(0, 12))
    assert low_watermarks_to_json(marks) == b'{"v":1,"name":"shop/orders","uid":77,"low_watermarks":[0,12]}'
    assert topic_to_json(replace(GOLDEN_TOPIC, low_watermarks=(0, 12))) == topic_to_json(GOLDEN_TOPIC)


@given(TOPIC_NAMES, NAMES, st.integers(0, 10**10 - 1))
def test_keys_come_back(name: TopicName, group: str, segment: int) -> None:
    assert keys.parse_topic_key(keys.topic_key(name)) == name
    assert keys.parse_low_watermarks_key(keys.low_watermarks_key(name)) == name
    assert keys.parse_deletion_key(keys.deletion_key(name)) == name
    assert keys.parse_segment_key(keys.segment_key(name, segment)) == (name, segment)
    assert keys.parse_broker_key(keys.broker_key(name.name)) == name.name
    assert keys.parse_left_key(keys.left_key(name.name)) == name.name
    assert keys.parse_group_key(keys.group_key(name, group)) == (name, group)
    assert keys.parse_offset_key(keys.offset_key(name, group, segment)) == (name, group, segment)


@given(TOPIC_NAMES, TOPIC_NAMES)
def test_no_prefix_covers_segments_or_offsets_of_another_topic_or_group(one: TopicName, other: TopicName) -> None:
    assert keys.segment_key(other, 0).startswith(keys.segments_prefix(one)) == (one == other)
    covered = keys.offset_key(ORDERS, other.name, 0).startswith(keys.offsets_prefix(ORDERS, one.name))
    assert covered == (one.name == other.name)


@given(TOPIC_NAMES, st.lists(st.integers(0, 10**10 - 1)))
def test_the_keys_of_a_topic_sort_by_segment(name: TopicName, ids: list[int]) -> None:
    assert sorted(keys.segment_key(name, i) for i in ids) == [keys.segment_key(name, i) for i in sorted(ids)]


@pytest.mark.parametrize(
    ("write", "read", "golden"),
    [(segment_to_json, segment_from_json, GOLDEN_SEGMENT), (group_to_json, group_from_json, GOLDEN_GROUP)],
)
def test_newer_fields_are_ignored_and_a_newer_format_is_not_guessed_at(write: Any, read: Any, golden: object) -> None:
    fields = json.loads(write(golden)) | {"color": "blue", "more": {"deep": []}}
    assert read(json.dumps(fields).encode()) == golden
    with pytest.raises(Unsupported, match="upgrade this broker"):
        read(json.dumps(fields | {"v": 2}).encode())


@pytest.mark.parametrize(
    ("field", "value", "written", "wrong"),
    [
        ("partitions", 12, 12, (0, PARTITIONS_MAX + 1, "12")),
        ("configs", (("a.b", "1"), ("c", "ä")), {"a.b": "1", "c": "ä"}, ([["a", "1"]], {"a": 1}, {"": "1"}, "a=1")),
    ],
)
def test_only_topics_with_such_fields_say_so(field: str, value: Any, written: object, wrong: Sequence[object]) -> None:
    assert field not in json.loads(topic_to_json(GOLDEN_TOPIC))
    fields = json.loads(topic_to_json(replace(GOLDEN_TOPIC, **{field: value})))
    assert fields[field] == written
    for each in wrong:
        with pytest.raises(Corrupt, match=field):
            topic_from_json(json.dumps(fields | {field: each}).encode())


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    topic = json.loads(topic_to_json(GOLDEN_TOPIC))
    del topic["target_bytes_per_s"], topic["target_records_per_s"], topic["segments_min"], topic["pruned"]
    older = replace(GOLDEN_TOPIC, target_bytes_per_s=None, segments_min=1, pruned=IdRanges())
    assert topic_from_json(json.dumps(topic).encode()) == older
    segment = json.loads(segment_to_json(GOLDEN_SEGMENT))
    del segment["opened_us"], segment["sealed_us"], segment["sequences_complete"]
    without = replace(GOLDEN_SEGMENT, opened_us=0, sealed_us=0, sequences_complete=False)
    assert segment_from_json(json.dumps(segment).encode()) == without


WRONG: Mapping[str, Sequence[object]] = {
    "v": (None,),
    "topic": ("no-slash", "../../etc/passwd"),
    "id": (-1, True, 1.5, 2**64),
    "slots": ([5, 5], [0, 1, 2], [0, 70_000]),
    "epoch": (0,),
    "state": ("ajar",),
    "replicas": ([], ["b\n"], "b-1"),
    "end_offset": (None, 9),
    "sequences": ([[1, 2]], [[1, 2, -3]], {}),
    "opened_us": (-1,),
    "sealed_us": (-1,),
}
"""Values that the fields of a segment cannot have."""
WRONG_OF_TOPIC: Mapping[str, Sequence[object]] = {
    "schema": ("*", "é"),
    "retention_s": (-1, 10**400),
    "replicas": (0,),
    "uid": ("7",),
    "target_bytes_per_s": ("fast",),
    "pruned": ([[0, 3], [3, 4]], [[2, 2]], [7]),
}

WRONG_OF_GROUP: Mapping[str, Sequence[object]] = {
    "topic_uid": (None,),
    "start": ("earliest", ["yesterday", 0], [["earliest"], 0], ["offset", -1]),
    "horizon": (-1,),
    "generation": (True,),
    "members": ([], {"m-1": [3, "host"]}, {"m-1": [3, "", []]}, {"m-1": ["3", "host", []]}),
    "owners": (
        *({"4": owner} for owner in (["m-2", 8, 0], ["m-1", 8, 3], ["m-1", 8])),
        *({number: ["m-1", 8, 0]} for number in ("four", "9" * 5_000)),
    ),
    "crashes": ({"4": 0},),
}


@pytest.mark.parametrize(
    ("write", "read", "golden", "field", "value"),
    [
        *((segment_to_json, segment_from_json, GOLDEN_SEGMENT, f, value) for f in WRONG for value in WRONG[f]),
        *((topic_to_json, topic_from_json, GOLDEN_TOPIC, f, v) for f, values in WRONG_OF_TOPIC.items() for v in values),
        *((group_to_json, group_from_json, GOLDEN_GROUP, f, v) for f, values in WRONG_OF_GROUP.items() for v in values),
        (committed_to_json, committed_from_json, GOLDEN_COMMITTED, "offset", -1),
        (committed_to_json, committed_from_json, GOLDEN_COMMITTED, "deliveries", {"x": 1}),
        (committed_to_json, committed_from_json, GOLDEN_COMMITTED, "at_us", 1.5),
    ],
)
def test_a_wrong_field_is_named(write: Any, read: Any, golden: object, field: str, value: object) -> None:
    fields = json.loads(write(golden)) | {field: value}
    with pytest.raises(Corrupt, match=field):
        read(json.dumps(fields).encode())


@pytest.mark.parametrize("missing", ["id", "address", "started_us", "pid", "version"])
def test_a_missing_field_is_named(missing: str) -> None:
    fields = json.loads(broker_to_json(GOLDEN_BROKER))
    del fields[missing]
    with pytest.raises(Corrupt, match=missing):
        broker_from_json(json.dumps(fields).encode())


@given(
    st.binary(max_size=60)
    | st.sampled_from([b"", b"[]", b"{}", b"null", b"\xff", b'"', b"[" * 100_000, b"1" * 10_000, b"NaN"])
)
def test_foreign_bytes_are_corrupt_and_nothing_else(data: bytes) -> None:
    for read in (
        *(topic_from_json, segment_from_json, broker_from_json, deletion_from_json, low_watermarks_from_json),
        *(group_from_json, committed_from_json),
    ):
        with pytest.raises(Corrupt):
            read(data)


@pytest.mark.parametrize(
    ("values", "write", "read"),
    [(segments(), segment_to_json, segment_from_json), (groups(), group_to_json, group_from_json)],
)
@given(data=st.data())
def test_damaged_bytes_are_read_or_refused(data: st.DataObject, values: Any, write: Any, read: Any) -> None:
    whole = bytearray(write(data.draw(values)))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Corrupt, Unsupported):
        read(bytes(whole))


@pytest.mark.parametrize(
    "key",
    [
        *("", "/other", "/seaweedmq/deletions/a", "/seaweedmq/low/a", "/seaweedmq/addresses/"),
        *(f"/seaweedmq/topics/{rest}" for rest in ("", "a", "a/b/", "a/b/c", "a/..")),
        *(f"/seaweedmq/segments/a/b/{number}" for number in ("1", "00000000\u06611", "000000000x")),
        *("/seaweedmq/brokers/", "/seaweedmq/brokers/a/b"),
        *(f"/seaweedmq-groups/state/{rest}" for rest in ("a/b", "a/b/", "a/../c")),
        *(f"/seaweedmq-groups/offsets/a/b/{rest}" for rest in ("c/1", "/0000000001")),
    ],
)
def test_foreign_keys_are_corrupt(key: str) -> None:
    for parse in (
        keys.parse_topic_key,
        keys.parse_deletion_key,
        keys.parse_low_watermarks_key,
        keys.parse_segment_key,
        keys.parse_broker_key,
        keys.parse_left_key,
        keys.parse_group_key,
        keys.parse_offset_key,
    ):
        with pytest.raises(Corrupt):
            parse(key)
