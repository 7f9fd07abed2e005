"""Conversion of the records of Kafka's ``__consumer_offsets``, byte for byte.

Programs that read Kafka's records can read these. A key or value begins with its version, an int16; integers are
big-endian.

| key | version | fields |
|---|---|---|
| an offset | 0, 1 | group, topic, int32 partition |
| a group | 2 | group |
| of the newer protocols | 3 and above | skipped |

| value | versions read | written | fields, with the version they begin with |
|---|---|---|---|
| an offset | 0-4 | 4 | int64 offset, int32 leader epoch (3), metadata, int64 commit \
time, int64 expiry (1 only), tag 0: topic id (4), tag 10000: int64 expiry (4, of SeaweedMQ) |
| a group | 0-4 | 3 | protocol type, int32 generation, protocol, leader, int64 since (2), members |
| a member | 0-4 | 3 | id, instance id (3), client id, host, int32 rebalance timeout (1), int32 session timeout, \
subscription, assignment |

Strings have an int16 length, bytes and arrays an int32 one, -1 is null. Version 4 has the compact forms of KIP-482 (an
unsigned varint, one more than the length) and tagged fields, of which unknown ones are skipped. A null value is a
tombstone. An offset without a topic id is written in version 3, or 1 if it expires by itself.
"""

import struct
from functools import lru_cache
from typing import Final

from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.kafka.groups import (
    GroupMetadataRecord,
    GroupValue,
    MemberValue,
    OffsetRecord,
    OffsetValue,
    ShardRecord,
)

OFFSET_KEY_VERSION: Final = 1
GROUP_KEY_VERSION: Final = 2
OFFSET_VALUE_VERSION: Final = 3
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
GROUP_VALUE_VERSION: Final = 3
VALUE_VERSION_MAX: Final = 4
"""First version with compact forms."""

TOPIC_ID_TAG: Final = 0
"""Kafka's tag of the topic id, since 4.1."""
TOPIC_ID_BYTES: Final = 16
EXPIRY_TAG: Final = 10_000
"""SeaweedMQ's own tag: Kafka has no version with both an expiry and a topic id, and skips it."""

_INT16, _INT32, _INT64 = (struct.Struct(f">{code}") for code in "hiq")
_OFFSET_HEAD, _EXPIRING_OFFSET_HEAD = struct.Struct(">hqi"), struct.Struct(">hq")
_OFFSET_KEY: Final = _INT16.pack(OFFSET_KEY_VERSION)
_GROUP_KEY: Final = _INT16.pack(GROUP_KEY_VERSION)


def partition_of_group(group: str, partitions: int) -> int:
    """Return the partition where all Kafka clients and tools expect the group, by Java's ``String.hashCode``."""
    signed = _hash_code(group) if len(group) > _REMEMBERED_LENGTH_MAX else _remembered_hash_code(group)
    return (0 if signed == -(1 << 31) else abs(signed)) % partitions


def _hash_code(text: str) -> int:
    utf16 = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for (unit,) in struct.iter_unpack(">H", utf16):
        code = (31 * code + unit) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


_remembered_hash_code = lru_cache(maxsize=4_096)(_hash_code)
_REMEMBERED_LENGTH_MAX: Final = 249
"""Longest cached name; longer ones are rare, and the cache stays within some megabytes."""


def encode_record(record: ShardRecord) -> tuple[bytes, bytes | None]:
    """Return key and value; a value of None is a tombstone."""
    if isinstance(record, OffsetRecord):
        key = b"".join((_OFFSET_KEY, _string(record.group), _string(record.topic), _INT32.pack(record.partition)))
        return key, None if record.value is None else _offset_bytes(record.value)
    key = _GROUP_KEY + _string(record.group)
    return key, None if record.value is None else _group_bytes(record.value)


def _offset_bytes(value: OffsetValue) -> bytes:
    if value.topic_id is not None:
        return _tagged_offset_bytes(value, value.topic_id)
    metadata = _string(value.metadata)
    if value.expire_ms is not None:
        head = _EXPIRING_OFFSET_HEAD.pack(EXPIRING_OFFSET_VALUE_VERSION, value.offset)
        return b"".join((head, metadata, _INT64.pack(value.commit_ms), _INT64.pack(value.expire_ms)))
    head = _OFFSET_HEAD.pack(OFFSET_VALUE_VERSION, value.offset, value.leader_epoch)
    return b"".join((head, metadata, _INT64.pack(value.commit_ms)))


def _tagged_offset_bytes(value: OffsetValue, topic_id: bytes) -> bytes:
    metadata = value.metadata.encode()
    tags = [_uvarint(TOPIC_ID_TAG) + _uvarint(len(topic_id)) + topic_id]
    if value.expire_ms is not None:
        tags.append(_uvarint(EXPIRY_TAG) + _uvarint(_INT64.size) + _INT64.pack(value.expire_ms))
    head = _OFFSET_HEAD.pack(VALUE_VERSION_MAX, value.offset, value.leader_epoch)
    return b"".join(
        (head, _uvarint(len(metadata) + 1), metadata, _INT64.pack(value.commit_ms), _uvarint(len(tags)), *tags)
    )


def _uvarint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _group_bytes(value: GroupValue) -> bytes:
    parts = [
        struct.pack(">h", GROUP_VALUE_VERSION),
        _string(value.protocol_type or ""),
        struct.pack(">i", value.generation),
        _string(value.protocol),
        _string(value.leader),
        struct.pack(">qi", -1 if value.since_ms is None else value.since_ms, len(value.members)),
    ]
    for member in value.members:
        parts += (
            _string(member.id),
            _string(member.instance),
            _string(member.client_id),
            _string(member.client_host),
            struct.pack(">ii", member.rebalance_timeout_ms, member.session_timeout_ms),
            struct.pack(">i", len(member.subscription)),
            member.subscription,
            struct.pack(">i", len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    data = text.encode()
    return _INT16.pack(len(data)) + data


def decode_record(key: bytes, value: bytes | None) -> ShardRecord | None:
    """Return the record of a key and value; None for other kinds, which a classic coordinator skips as Kafka's does.

    Raises Corrupt if the bytes do not match their version, and Unsupported if a value has a later version.
    """
    reader = _Reader("key", key)
    version = reader.int16()
    if version not in {0, OFFSET_KEY_VERSION, GROUP_KEY_VERSION}:
        return None
    group = reader.string()
    if version == GROUP_KEY_VERSION:
        reader.end()
        return GroupMetadataRecord(group, None if value is None else _read_group(value))
    topic, partition = reader.string(), reader.int32()
    reader.end()
    return OffsetRecord(group, topic, partition, None if value is None else _read_offset(value))


def _read_offset(data: bytes) -> OffsetValue:
    reader = _Reader("offset", data)
    version = reader.value_version()
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else -1
    metadata = reader.string()
    commit_ms = reader.int64()
    expire_ms = reader.int64() if version == 1 else -1
    tags = reader.tags()
    reader.end()
    if len(expiry := tags.get(EXPIRY_TAG, b"")) == _INT64.size:
        (expire_ms,) = _INT64.unpack(expiry)
    topic_id = tags.get(TOPIC_ID_TAG, b"")
    return OffsetValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_ms=commit_ms,
        expire_ms=None if expire_ms == -1 else expire_ms,
        topic_id=topic_id if len(topic_id) == TOPIC_ID_BYTES and any(topic_id) else None,
    )


def _read_group(data: bytes) -> GroupValue:
    reader = _Reader("group", data)
    version = reader.value_version()
    protocol_type = reader.string()
    generation = reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    since_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(reader, version) for _ in range(reader.count()))
    reader.tags()
    reader.end()
    return GroupValue(
        generation=generation,
        protocol_type=protocol_type or None,
        protocol=protocol,
        leader=leader,
        since_ms=None if since_ms == -1 else since_ms,
        members=members,
    )


def _read_member(reader: "_Reader", version: int) -> MemberValue:
    id_ = reader.string()
    instance = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription, assignment = reader.bytes_(), reader.bytes_()
    reader.tags()
    return MemberValue(
        id=id_,
        instance=instance,
        client_id=client_id,
        client_host=client_host,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms == -1 else rebalance_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


class _Reader:
    """A reader of one field after another, within the bounds of the data."""

    def __init__(self, what: str, data: bytes) -> None:
        self._what = what
        self._data = data
        self._at = 0
        self._is_compact = False

    def value_version(self) -> int:
        """Read the version of a value; raises Unsupported for a later one."""
        version = self.int16()
        if not 0 <= version <= VALUE_VERSION_MAX:
            raise Unsupported(
                f"a {self._what} of version {version} in __consumer_offsets: this build reads up to {VALUE_VERSION_MAX}"
            )
        self._is_compact = version == VALUE_VERSION_MAX
        return version

    def int16(self) -> int:
        """Read an int16."""
        return int.from_bytes(self._take(2), "big", signed=True)

    def int32(self) -> int:
        """Read an int32."""
        return int.from_bytes(self._take(4), "big", signed=True)

    def int64(self) -> int:
        """Read an int64."""
        return int.from_bytes(self._take(8), "big", signed=True)

    def string(self) -> str:
        """Read a string that is not null."""
        text = self.nullable_string()
        if text is None:
            raise self._corrupt("a string that must be there is null")
        return text

    def nullable_string(self) -> str | None:
        """Read a string or null."""
        length = self._uvarint() - 1 if self._is_compact else self.int16()
        if length == -1:
            return None
        data = self._take(length)
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise self._corrupt("a string is not UTF-8") from error

    def bytes_(self) -> bytes:
        """Read bytes."""
        return self._take(self._uvarint() - 1 if self._is_compact else self.int32())

    def count(self) -> int:
        """Read the number of members."""
        count = self._uvarint() - 1 if self._is_compact else self.int32()
        if not 0 <= count <= len(self._data) - self._at:
            raise self._corrupt(f"it has a count of {count} members")
        return count

    def tags(self) -> dict[int, bytes]:
        """Read tagged fields by their tag: fields that a later Kafka adds without a new version."""
        if not self._is_compact:
            return {}
        return {self._uvarint(): self._take(self._uvarint()) for _ in range(self._uvarint())}

    def end(self) -> None:
        """Raise Corrupt unless all data is read."""
        if self._at != len(self._data):
            raise self._corrupt(f"{len(self._data) - self._at} bytes are left")

    def _uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            (byte,) = self._take(1)
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._corrupt("a length has more than five bytes")

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if length < 0 or end > len(self._data):
            raise self._corrupt(f"at byte {self._at} it lacks {length} bytes")
        data, self._at = self._data[self._at : end], end
        return data

    def _corrupt(self, why: str) -> Corrupt:
        return Corrupt(f"{self._what} of {len(self._data)} bytes in __consumer_offsets: {why}")
