"""Keys and values of ``__consumer_offsets`` are Kafka's, byte for byte.

``golden/group_records.txt`` was written by Apache Kafka 4.1.2: its own generated classes of these messages
(``org.apache.kafka.coordinator.group.generated``), each version by ``MessageUtil.toVersionPrefixedByteBuffer``.
"""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.codec.kafka.group_records import decode_record, encode_record, partition_of_group
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.kafka.groups import GroupMetadataRecord, GroupValue, MemberValue, OffsetRecord, OffsetValue

GOLDEN = {
    name: bytes.fromhex(data)
    for name, data in (
        line.split() for line in (Path(__file__).parent / "golden" / "group_records.txt").read_text().splitlines()
    )
}
NOON_MS = 1_700_000_000_000


def offset_value(version: int) -> OffsetValue:
    return OffsetValue(
        offset=1_234_567_890_123,
        leader_epoch=7 if version >= 3 else -1,
        metadata="café",
        commit_ms=NOON_MS,
        expire_ms=NOON_MS + 600_000 if version == 1 else None,
    )


def member(version: int, id_: str, instance: str | None) -> MemberValue:
    return MemberValue(
        id=id_,
        instance=instance if version >= 3 else None,
        client_id="client",
        client_host="/127.0.0.1",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000 if version >= 1 else 45_000,
        subscription=b"\1\2\3",
        assignment=b"\4\5",
    )


def group_value(version: int) -> GroupValue:
    return GroupValue(
        generation=9,
        protocol_type="consumer",
        protocol="range",
        leader="client-1",
        since_ms=NOON_MS if version >= 2 else None,
        members=(member(version, "client-1", None), member(version, "pod-2-2", "pod-2")),
    )


EMPTY = GroupValue(generation=0, protocol_type=None, protocol=None, leader=None, since_ms=None, members=())


@pytest.mark.parametrize("version", range(5))
def test_every_version_that_kafka_wrote_is_read(version: int) -> None:
    offset_key, group_key = GOLDEN["offset_key_1"], GOLDEN["group_key_2"]
    assert decode_record(offset_key, GOLDEN[f"offset_value_{version}"]) == OffsetRecord(
        "shop", "orders", 3, offset_value(version)
    )
    assert decode_record(group_key, GOLDEN[f"group_value_{version}"]) == GroupMetadataRecord(
        "shop", group_value(version)
    )
    assert decode_record(group_key, GOLDEN[f"empty_group_value_{version}"]) == GroupMetadataRecord("shop", EMPTY)


TOPIC_ID = (1).to_bytes(8, "big") + (2).to_bytes(8, "big")


def test_the_topic_of_an_offset_is_read_and_written_as_kafka_does() -> None:
    record = OffsetRecord("shop", "orders", 3, replace(offset_value(4), topic_id=TOPIC_ID))
    assert decode_record(GOLDEN["offset_key_0"], GOLDEN["offset_value_4_topic_id"]) == record
    assert encode_record(record) == (GOLDEN["offset_key_1"], GOLDEN["offset_value_4_topic_id"])


def test_tags_of_a_value_are_those_of_kafka_and_skipped_if_they_are_of_a_later_one() -> None:
    value = replace(offset_value(1), topic_id=TOPIC_ID)
    data = encode_record(OffsetRecord("shop", "orders", 3, value))[1]
    tags = b"\2" + b"\0\x10" + TOPIC_ID + b"\x90\x4e\x08" + (NOON_MS + 600_000).to_bytes(8, "big")
    assert data is not None
    assert data.endswith(tags)

    later = GOLDEN["offset_value_4"][:-1] + b"\1\x7f\3abc"
    assert decode_record(GOLDEN["offset_key_0"], later) == OffsetRecord("shop", "orders", 3, offset_value(4))


def test_what_is_written_is_what_kafka_writes() -> None:
    assert encode_record(OffsetRecord("shop", "orders", 3, offset_value(3))) == (
        GOLDEN["offset_key_1"],
        GOLDEN["offset_value_3"],
    )
    assert encode_record(OffsetRecord("shop", "orders", 3, offset_value(1)))[1] == GOLDEN["offset_value_1"]
    assert encode_record(GroupMetadataRecord("shop", group_value(3))) == (
        GOLDEN["group_key_2"],
        GOLDEN["group_value_3"],
    )
    assert encode_record(GroupMetadataRecord("shop", EMPTY))[1] == GOLDEN["empty_group_value_3"]


def test_a_tombstone_has_a_key_and_no_value() -> None:
    for record in (OffsetRecord("shop", "orders", 3, None), GroupMetadataRecord("shop", None)):
        key, value = encode_record(record)
        assert value is None
        assert decode_record(key, value) == record


def test_keys_of_other_kinds_are_skipped_and_a_value_of_a_later_version_is_named() -> None:
    for version in (-1, 3, 8, 20):
        assert decode_record(version.to_bytes(2, "big", signed=True) + b"anything", b"at all") is None
    for version in (-1, 5):
        said = rf"an? offset of version {version} in __consumer_offsets: this build reads up to 4"
        with pytest.raises(Unsupported, match=said):
            decode_record(GOLDEN["offset_key_1"], version.to_bytes(2, "big", signed=True))


@pytest.mark.parametrize("name", [name for name in GOLDEN if "value" in name])
def test_half_a_value_is_corrupt_wherever_it_is_cut(name: str) -> None:
    key = GOLDEN["offset_key_1"] if name.startswith("offset") else GOLDEN["group_key_2"]
    for length in range(len(GOLDEN[name])):
        with pytest.raises(Corrupt):
            decode_record(key, GOLDEN[name][:length])
    with pytest.raises(Corrupt, match="1 bytes are left"):
        decode_record(key, GOLDEN[name] + b"\0")


def test_lengths_beyond_all_bytes_are_corrupt() -> None:
    data = bytearray(GOLDEN["empty_group_value_3"])
    data[-4:] = (2**31 - 1).to_bytes(4, "big")
    with pytest.raises(Corrupt, match="2147483647 members"):
        decode_record(GOLDEN["group_key_2"], bytes(data))

    with pytest.raises(Corrupt, match="more than five bytes"):
        decode_record(GOLDEN["group_key_2"], b"\0\4" + b"\xff" * 6)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(0, 2**63 - 1)
MEMBERS = st.builds(
    MemberValue,
    **dict.fromkeys(("id", "client_id", "client_host"), TEXT),
    instance=st.none() | TEXT,
    session_timeout_ms=INT32,
    rebalance_timeout_ms=st.integers(0, 2**31 - 1),
    **dict.fromkeys(("subscription", "assignment"), st.binary(max_size=40)),
)
GROUPS = st.builds(
    GroupValue,
    generation=INT32,
    protocol_type=st.none() | TEXT.filter(bool),
    protocol=st.none() | TEXT,
    leader=st.none() | TEXT,
    since_ms=st.none() | INT64,
    members=st.lists(MEMBERS, max_size=4).map(tuple),
)
OFFSETS = st.builds(
    OffsetValue,
    offset=INT64,
    leader_epoch=INT32,
    metadata=TEXT,
    commit_ms=INT64,
    expire_ms=st.none() | INT64,
    topic_id=st.none() | st.binary(min_size=16, max_size=16).filter(any),
)
RECORDS = st.builds(GroupMetadataRecord, TEXT, st.none() | GROUPS) | st.builds(
    OffsetRecord, TEXT, TEXT, INT32, st.none() | OFFSETS
)


@given(RECORDS)
def test_what_is_written_is_read_again(record: GroupMetadataRecord | OffsetRecord) -> None:
    expected = record
    value = record.value if isinstance(record, OffsetRecord) else None
    if isinstance(record, OffsetRecord) and value and value.expire_ms is not None and value.topic_id is None:
        # As Kafka's: the version that has an expiry has no leader epoch.
        expected = replace(record, value=replace(value, leader_epoch=-1))
    assert decode_record(*encode_record(record)) == expected


@given(st.binary(max_size=200), st.none() | st.binary(max_size=200))
def test_any_bytes_are_read_skipped_or_refused(key: bytes, value: bytes | None) -> None:
    for prefix in (b"", b"\0\1", b"\0\2"):
        for version in (b"", b"\0\0", b"\0\3", b"\0\4"):
            with suppress(Corrupt, Unsupported):
                decode_record(prefix + key, None if value is None else version + value)


@pytest.mark.parametrize(
    ("group", "of_50", "of_8"),
    [
        *[("", 0, 0), ("shop", 12, 6), ("orders", 31, 3), ("my-group", 12, 2), ("café", 21, 1), ("😀", 49, 3)],
        ("polygenelubricants", 0, 0),  # its hash is the one int that has no absolute value
        *[("a b c", 18, 6), ("console-consumer-12345", 6, 2)],
    ],
)
def test_a_group_lives_where_java_looks_for_it(group: str, of_50: int, of_8: int) -> None:
    assert (partition_of_group(group, 50), partition_of_group(group, 8)) == (of_50, of_8)
