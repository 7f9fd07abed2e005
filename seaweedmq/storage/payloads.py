"""Payloads by reference read from the storage itself, by processes that have it: clients and Spark tasks."""

import asyncio

from seaweedmq.codec.payload_check import PayloadCheck
from seaweedmq.errors import NotFound
from seaweedmq.model.config import MIB
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import blobs
from seaweedmq.storage.faults import storage_failed
from seaweedmq.storage.place import Place

READ_BYTES = 8 * MIB
"""Bytes of a payload that one read takes."""


class PlaceBlobs:
    """The payloads in a place, as a ``ports.BlobReader``."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def read(self, uri: str, position: int, length: int) -> bytes:
        """Read a range of a payload in a thread."""
        return await asyncio.to_thread(_read, self._place, uri, position, length)


def fetch_payload(place: Place, reference: PayloadReference, topic: TopicName, topic_uid: int) -> bytes:
    """Return a whole payload, verified. Blocking.

    Raises:
        PayloadLost: If it is missing, changed, cut short, or not one of this topic.
        StorageFailed: If the storage cannot be read now.
    """
    check = PayloadCheck(reference, topic, topic_uid)
    data = bytearray()
    try:
        while check.left_bytes:
            part = _read(place, reference.uri, check.position, min(READ_BYTES, check.left_bytes))
            check.update(part)
            data += part
    except NotFound as error:
        raise check.missing(error) from error
    if not reference.size_bytes:
        check.finish()
    return bytes(data)


def _read(place: Place, uri: str, position: int, length: int) -> bytes:
    try:
        return blobs.read_blob(place, blobs.name_of(uri), position, length)
    except OSError as error:
        raise storage_failed("read", uri, error) from error
