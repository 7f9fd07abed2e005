"""Keys and values of groups in etcd: golden bytes, round trips, and foreign keys."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.state import keys
from seaweedmq.codec.state.group_metadata import (
    committed_from_json,
    committed_to_json,
    group_from_json,
    group_to_json,
)
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.group_record import CommittedOffset, GroupRecord, MemberRecord, SegmentOwner
from seaweedmq.model.messages.subscribe import Start, StartKind
from seaweedmq.model.topic import TopicName

UINTS = st.integers(0, 2**64 - 1)
COUNTS = st.dictionaries(UINTS, st.integers(1, 1_000), max_size=5)
NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
MEMBERS = st.builds(
    MemberRecord,
    incarnation=UINTS,
    client=st.text(st.characters(categories=("L", "N", "P", "S")), min_size=1, max_size=20),
    former=st.lists(UINTS, max_size=8).map(tuple),
)


@st.composite
def records(draw: st.DrawFn) -> GroupRecord:
    members = draw(st.dictionaries(NAMES, MEMBERS, max_size=4))
    owner = st.builds(SegmentOwner, st.sampled_from(sorted(members) or ["m"]), UINTS) | st.builds(
        SegmentOwner, st.sampled_from(sorted(members) or ["m"]), UINTS, st.just(True), st.booleans()
    )
    return GroupRecord(
        topic_uid=draw(UINTS),
        start=draw(st.builds(Start, st.sampled_from(StartKind), UINTS)),
        horizon=draw(UINTS),
        generation=draw(UINTS),
        members=members,
        owners=draw(st.dictionaries(UINTS, owner, max_size=5)) if members else {},
        crashes=draw(COUNTS),
    )


COMMITTED = st.builds(CommittedOffset, offset=UINTS, deliveries=COUNTS, at_us=UINTS)

ORDERS = TopicName("shop", "orders")
GOLDEN_RECORD = GroupRecord(
    topic_uid=77,
    start=Start(StartKind.TIME, 1_700_000_000_000_000),
    horizon=5,
    generation=9,
    members={"m-1": MemberRecord(incarnation=3, client="host:17", former=(2, 1))},
    owners={
        4: SegmentOwner("m-1", 8),
        5: SegmentOwner("m-1", 9, revoking=True),
        6: SegmentOwner("m-1", 8, revoking=True, void=True),
    },
    crashes={4: 2},
)
GOLDEN_COMMITTED = CommittedOffset(offset=42, deliveries={43: 2}, at_us=1_700_000_000_000_001)


def test_the_bytes_of_the_values_are_these() -> None:
    assert group_to_json(GOLDEN_RECORD) == (
        b'{"v":1,"topic_uid":77,"start":["time",1700000000000000],"horizon":5,"generation":9,'
        b'"members":{"m-1":[3,"host:17",[2,1]]},"owners":{"4":["m-1",8,0],"5":["m-1",9,1],"6":["m-1",8,2]},'
        b'"crashes":{"4":2}}'
    )
    assert committed_to_json(GOLDEN_COMMITTED) == (
        b'{"v":1,"offset":42,"deliveries":{"43":2},"at_us":1700000000000001}'
    )


def test_the_keys_are_these() -> None:
    assert keys.group_key(ORDERS, "billing") == "/seaweedmq-groups/state/shop/orders/billing"
    assert keys.offset_key(ORDERS, "billing", 4) == "/seaweedmq-groups/offsets/shop/orders/billing/0000000004"


@given(records())
def test_a_record_comes_back(record: GroupRecord) -> None:
    assert group_from_json(group_to_json(record)) == record


@given(COMMITTED)
def test_a_committed_offset_comes_back(committed: CommittedOffset) -> None:
    assert committed_from_json(committed_to_json(committed)) == committed


@given(NAMES, NAMES, NAMES, st.integers(0, 10**10 - 1))
def test_keys_come_back(namespace: str, topic: str, group: str, segment: int) -> None:
    name = TopicName(namespace, topic)
    assert keys.parse_group_key(keys.group_key(name, group)) == (name, group)
    assert keys.parse_offset_key(keys.offset_key(name, group, segment)) == (name, group, segment)


@given(NAMES, NAMES)
def test_no_groups_prefix_covers_another_groups_offsets(one: str, other: str) -> None:
    covered = keys.offset_key(ORDERS, other, 0).startswith(keys.offsets_prefix(ORDERS, one))
    assert covered == (one == other)


def test_fields_that_a_newer_version_adds_are_ignored() -> None:
    fields = json.loads(group_to_json(GOLDEN_RECORD)) | {"color": "blue"}
    assert group_from_json(json.dumps(fields).encode()) == GOLDEN_RECORD


def test_a_newer_format_is_not_guessed_at() -> None:
    fields = json.loads(group_to_json(GOLDEN_RECORD)) | {"v": 2}
    with pytest.raises(Unsupported, match="upgrade this broker"):
        group_from_json(json.dumps(fields).encode())


WRONG: Mapping[str, Sequence[object]] = {
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
"""Values that the fields of a group cannot have."""


@pytest.mark.parametrize(
    ("write", "read", "golden", "field", "value"),
    [
        *((group_to_json, group_from_json, GOLDEN_RECORD, f, value) for f in WRONG for value in WRONG[f]),
        (committed_to_json, committed_from_json, GOLDEN_COMMITTED, "offset", -1),
        (committed_to_json, committed_from_json, GOLDEN_COMMITTED, "deliveries", {"x": 1}),
        (committed_to_json, committed_from_json, GOLDEN_COMMITTED, "at_us", 1.5),
    ],
)
def test_a_wrong_field_is_named(write: Any, read: Any, golden: object, field: str, value: object) -> None:
    fields = json.loads(write(golden)) | {field: value}
    with pytest.raises(Corrupt, match=field):
        read(json.dumps(fields).encode())


@given(records(), st.data())
def test_damaged_bytes_are_read_or_refused(record: GroupRecord, data: st.DataObject) -> None:
    whole = bytearray(group_to_json(record))
    whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    try:
        group_from_json(bytes(whole))
    except (Corrupt, Unsupported):
        return


def test_foreign_bytes_are_corrupt_and_nothing_else() -> None:
    for data in (b"", b"[]", b"null", b"\xff", b"{}"):
        for read in (group_from_json, committed_from_json):
            with pytest.raises(Corrupt):
                read(data)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/seaweedmq-groups/state/a/b",
        "/seaweedmq-groups/state/a/b/",
        "/seaweedmq-groups/state/a/../c",
        "/seaweedmq-groups/offsets/a/b/c/1",
        "/seaweedmq-groups/offsets/a/b//0000000001",
        "/seaweedmq/topics/a/b",
    ],
)
def test_foreign_keys_are_corrupt(key: str) -> None:
    for parse in (keys.parse_group_key, keys.parse_offset_key):
        with pytest.raises(Corrupt):
            parse(key)
