"""What a consumer was assigned by its group's leader: the beginning of Kafka's ``ConsumerProtocolAssignment``."""

import struct


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...]:
    """Topics and partitions, in order: int16 version, then an array of topics, each a string and an array of int32.
    Empty if it is nothing like that: of another kind of group than of consumers."""
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
