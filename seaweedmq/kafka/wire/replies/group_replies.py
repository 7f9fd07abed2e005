"""Encoders of replies to Heartbeat and OffsetCommit, the most frequent requests of group members.

The handwritten layouts are those of Heartbeat 0 to 4, flexible from 4, and of OffsetCommit 2 to 9, flexible from 8.
"""

import struct
from collections.abc import Generator, Sequence
from typing import Final, TypeAlias

from seaweedmq.kafka.wire.fields import count, text
from seaweedmq.kafka.wire.messages import EncodedReply

TopicErrors: TypeAlias = tuple[str, Sequence[tuple[int, int]]]
"""A topic, with the number and the error of each partition."""

PARTITIONS_A_STEP: Final = 50

_THROTTLED_HEARTBEAT_FROM: Final = 1
_FLEXIBLE_HEARTBEAT_FROM: Final = 4
_THROTTLED_COMMIT_FROM: Final = 3
_FLEXIBLE_COMMIT_FROM: Final = 8
_ERROR = struct.Struct(">h")
_PARTITION = struct.Struct(">ih")
_NO_THROTTLE = bytes(4)
_NO_TAGS = b"\0"


def heartbeat_reply(version: int, error: int) -> EncodedReply:
    """Encode the body of a reply to Heartbeat."""
    body = _ERROR.pack(error)
    if version >= _THROTTLED_HEARTBEAT_FROM:
        body = _NO_THROTTLE + body
    return EncodedReply((body + _NO_TAGS if version >= _FLEXIBLE_HEARTBEAT_FROM else body,))


def commit_reply(version: int, topics: Sequence[TopicErrors]) -> Generator[None, None, EncodedReply]:
    """Encode the body of a reply to OffsetCommit in steps."""
    flexible = version >= _FLEXIBLE_COMMIT_FROM
    tags = _NO_TAGS if flexible else b""
    parts = [_NO_THROTTLE if version >= _THROTTLED_COMMIT_FROM else b"", count(len(topics), flexible)]
    for name, partitions in topics:
        parts += (text(name, flexible), count(len(partitions), flexible))
        for first in range(0, len(partitions), PARTITIONS_A_STEP):
            some = partitions[first : first + PARTITIONS_A_STEP]
            parts.append(b"".join([_PARTITION.pack(number, error) + tags for number, error in some]))
            yield
        parts.append(tags)
    parts.append(tags)
    return EncodedReply((b"".join(parts),))
