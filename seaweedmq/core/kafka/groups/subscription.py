"""Topics of a consumer's subscription: the first part of its metadata, which is the same in all versions."""

import struct


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """Decode the topics of Kafka's ``ConsumerProtocolSubscription``; None if the bytes are not one.

    The format is an int16 version, then an array of strings.
    """
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
