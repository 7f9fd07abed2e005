"""Encoder of Fetch replies as buffers, which passes records to the socket without copying them.

It supports versions 4 to 17; versions from 12 are flexible.
"""

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from seaweedmq.kafka.wire.fields import Endpoint, count, leader_tag, node_endpoints, text, varint
from seaweedmq.kafka.wire.messages import Buffer, EncodedReply

_FLEXIBLE_FROM = 12
_TOPIC_IDS_FROM = 13
_ENDPOINTS_FROM = 16
_TAG_CURRENT_LEADER = 1
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_PAIR = struct.Struct(">qq")
_WITH_START = struct.Struct(">ihqqq")
_WITHOUT_START = struct.Struct(">ihqq")


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """One partition of a Fetch reply."""

    index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    records: Sequence[Buffer] = ()
    """Whole batches, split into buffers at any position."""
    aborted: Sequence[tuple[int, int]] | None = None
    """Producer id and first offset of aborted transactions; None for isolation level read_uncommitted."""
    leader_id: int = -1
    leader_epoch: int = -1
    """Leader epoch with an error, as ``leader_id``; -1: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedTopic:
    """One topic of a Fetch reply, identified by name, or from version 13 by id."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: Sequence[FetchedPartition]


def fetch_reply(
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
    endpoints: Sequence[Endpoint] = (),
    sent: Callable[[], None] | None = None,
) -> EncodedReply:
    """Encode the body of a reply; fields that ``version`` lacks are omitted. ``sent`` is that of ``EncodedReply``."""
    flexible = version >= _FLEXIBLE_FROM
    head = bytearray(_INT32.pack(throttle_ms))
    if version >= 7:
        head += _INT16.pack(error_code) + _INT32.pack(session_id)
    buffers: list[Buffer] = []
    head += count(len(topics), flexible)
    numbers = _WITH_START if version >= 5 else _WITHOUT_START
    for topic in topics:
        head += topic.topic_id if version >= _TOPIC_IDS_FROM else text(topic.name, flexible)
        head += count(len(topic.partitions), flexible)
        for one in topic.partitions:
            offsets = (one.high_watermark, one.last_stable_offset, one.log_start_offset)
            head += numbers.pack(one.index, one.error_code, *(offsets if version >= 5 else offsets[:2]))
            head += _aborted(one.aborted, flexible)
            if version >= 11:
                head += _INT32.pack(-1)  # no preferred replica
            size = sum(map(len, one.records))
            head += varint(size + 1) if flexible else _INT32.pack(size)
            if size:
                buffers.append(head)
                buffers.extend(one.records)
                head = bytearray()
            if flexible:
                head += leader_tag(_TAG_CURRENT_LEADER, one.leader_id, one.leader_epoch)
        if flexible:
            head += b"\0"
    if flexible:
        head += node_endpoints(endpoints if version >= _ENDPOINTS_FROM else ())
    if head:
        buffers.append(head)
    return EncodedReply(buffers, sent)


def _aborted(aborted: Sequence[tuple[int, int]] | None, flexible: bool) -> bytes:
    if aborted is None:
        return b"\0" if flexible else _INT32.pack(-1)
    end = b"\0" if flexible else b""
    return count(len(aborted), flexible) + b"".join(_PAIR.pack(*one) + end for one in aborted)
