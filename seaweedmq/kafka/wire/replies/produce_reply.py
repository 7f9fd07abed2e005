"""Encoder of Produce replies without message objects, which would cost more than small requests themselves.

It supports versions 3 to 13; versions from 9 are flexible.
"""

import struct
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from seaweedmq.kafka.wire.fields import Endpoint, count, leader_tag, node_endpoints, nullable_text, text
from seaweedmq.kafka.wire.messages import EncodedReply

PARTITIONS_A_STEP = 50

_START_FROM = 5
_ERRORS_FROM = 8
_FLEXIBLE_FROM = 9
_LEADERS_FROM = 10
_TOPIC_IDS_FROM = 13
_TAG_CURRENT_LEADER = 0
_WITHOUT_START = struct.Struct(">ihqq")
_WITH_START = struct.Struct(">ihqqq")
_INT32 = struct.Struct(">i")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedPartition:
    """One partition of a Produce reply."""

    index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str]] = ()
    """Index in the batch, and reason, of each record for which the batch is rejected."""
    error_message: str | None = None
    leader_id: int = -1
    leader_epoch: int = -1
    """Leader epoch with an error, as ``leader_id``; -1: unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducedTopic:
    """One topic of a Produce reply, identified by name, or from version 13 by id."""

    name: str = ""
    topic_id: bytes = bytes(16)
    partitions: Sequence[ProducedPartition]


def produce_reply(
    version: int, topics: Sequence[ProducedTopic], *, throttle_ms: int = 0, endpoints: Sequence[Endpoint] = ()
) -> Generator[None, None, EncodedReply]:
    """Encode the body of a reply in steps; fields that ``version`` lacks are omitted."""
    flexible = version >= _FLEXIBLE_FROM
    body, written = bytearray(count(len(topics), flexible)), 0
    for topic in topics:
        body += topic.topic_id if version >= _TOPIC_IDS_FROM else text(topic.name, flexible)
        body += count(len(topic.partitions), flexible)
        for one in topic.partitions:
            written += 1
            if written % PARTITIONS_A_STEP == 0:
                yield
            numbers = (one.index, one.error_code, one.base_offset, one.log_append_time_ms)
            body += (
                _WITH_START.pack(*numbers, one.log_start_offset)
                if version >= _START_FROM
                else _WITHOUT_START.pack(*numbers)
            )
            if version >= _ERRORS_FROM:
                body += count(len(one.record_errors), flexible)
                for number, why in one.record_errors:
                    body += _INT32.pack(number) + nullable_text(why, flexible) + (b"\0" if flexible else b"")
                body += nullable_text(one.error_message, flexible)
            if flexible:
                has_leader = version >= _LEADERS_FROM
                body += leader_tag(_TAG_CURRENT_LEADER, one.leader_id, one.leader_epoch) if has_leader else b"\0"
        if flexible:
            body += b"\0"
    body += _INT32.pack(throttle_ms)
    if flexible:
        body += node_endpoints(endpoints if version >= _LEADERS_FROM else ())
    return EncodedReply((body,))
