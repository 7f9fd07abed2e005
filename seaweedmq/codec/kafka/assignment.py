"""Parser of a consumer's assignment: the beginning of Kafka's ``ConsumerProtocolAssignment``."""

import struct


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Return topics and partitions in order; empty if the bytes are of a group other than of consumers.

    Format: int16 version, then an array of topics, each a string and an array of int32.
    """
    found: list[tuple[str, int]] = []
    try:
        _version, topics = struct.unpack_from(">hi", assignment)
        at = 6
        for _ in range(topics):
            (length,) = struct.unpack_from(">h", assignment, at)
            at += 2
            topic = assignment[at : at + length].decode()
            at += length
            (count,) = struct.unpack_from(">i", assignment, at)
            if length < 0 or count < 0:
                return ()
            at += 4
            found += ((topic, number) for number in struct.unpack_from(f">{count}i", assignment, at))
            at += 4 * count
    except (struct.error, UnicodeDecodeError):
        return ()
    return tuple(sorted(found))
