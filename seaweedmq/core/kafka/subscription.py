"""Which topics a consumer subscribed to: the beginning of its metadata, the same in all versions of it."""

import struct


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Kafka's ``ConsumerProtocolSubscription``: int16 version, then an array of strings. None: it is not one."""
    try:
        _version, count = struct.unpack_from(">hi", metadata)
        if not 0 <= count <= len(metadata):
            return None
        at, topics = 6, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, at)
            at += 2
            if not 0 <= length <= len(metadata) - at:
                return None
            topics.append(metadata[at : at + length].decode())
            at += length
    except (struct.error, UnicodeDecodeError):
        return None
    return frozenset(topics)
