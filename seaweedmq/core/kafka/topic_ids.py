"""Kafka's topic ids: 16 bytes, of which the first 8 are the topic's uid."""

UID_BYTES = 8
_TAIL = bytes.fromhex("8000736561776564")
"""Arbitrary fixed bytes: an id that ends otherwise was not made here."""
NO_TOPIC_ID = bytes(16)


def topic_id_of(uid: int) -> bytes:
    """Return the id of the topic with this uid."""
    return uid.to_bytes(UID_BYTES, "big") + _TAIL


def uid_of(topic_id: bytes) -> int | None:
    """Return the uid in an id; None if the id was not made here."""
    return int.from_bytes(topic_id[:UID_BYTES], "big") if topic_id[UID_BYTES:] == _TAIL else None
