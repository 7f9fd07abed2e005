"""Kafka's topic ids: 16 bytes, of which the first 8 are the topic's uid."""

UID_BYTES = 8
_TAIL = bytes.fromhex("8000736561776564")
"""Any fixed bytes: an id that ends otherwise is none of ours."""
NO_TOPIC_ID = bytes(16)


def topic_id_of(uid: int) -> bytes:
    """The id of the topic with this uid."""
    return uid.to_bytes(UID_BYTES, "big") + _TAIL


def uid_of(topic_id: bytes) -> int | None:
    """The uid in an id; None if it is not one of a topic here."""
    return int.from_bytes(topic_id[:UID_BYTES], "big") if topic_id[UID_BYTES:] == _TAIL else None
