"""Verification of a payload by reference while it is read: its size and SHA-256."""

import hashlib

from seaweedmq.codec.references import check_own
from seaweedmq.errors import InvalidArgument, NotFound, PayloadLost
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName


class PayloadCheck:
    """The check of one payload that is read in order, from its first byte to its last."""

    def __init__(self, reference: PayloadReference, topic: TopicName, topic_uid: int) -> None:
        """Begin to check a payload.

        Raises:
            PayloadLost: If it is not one of the record's topic.
        """
        try:
            check_own(reference, topic, topic_uid)
        except InvalidArgument as error:
            raise PayloadLost(f"{error}; the record can be acknowledged without it") from None
        self._reference = reference
        self._hash = hashlib.sha256()
        self.position = 0
        """Bytes read so far, which is the position of the next ones."""

    @property
    def left_bytes(self) -> int:
        """Bytes still to be read."""
        return self._reference.size_bytes - self.position

    def update(self, data: bytes) -> None:
        """Take the next bytes, at least one. The check of all precedes the delivery of the last ones.

        Raises:
            PayloadLost: If there are none although some are left, or if these are the last and the hash differs.
        """
        if not data:
            raise _lost(self._reference, f"ends after {self.position} of {self._reference.size_bytes} bytes")
        self._hash.update(data)
        self.position += len(data)
        if not self.left_bytes:
            self.finish()

    def finish(self) -> None:
        """Check the hash of all bytes; requires that none is left.

        Raises:
            PayloadLost: If it differs.
        """
        if self._hash.digest() != self._reference.sha256:
            raise _lost(
                self._reference, f"has SHA-256 {self._hash.hexdigest()} instead of {self._reference.sha256.hex()}"
            )

    def missing(self, error: NotFound) -> PayloadLost:
        """Return the error of a payload that is not in the storage."""
        return _lost(self._reference, f"cannot be read ({error})")


def _lost(reference: PayloadReference, why: str) -> PayloadLost:
    return PayloadLost(
        f"payload {reference.uri} {why}: it was deleted or changed after the record was published; restore it from a "
        "copy, or acknowledge the record without it"
    )
