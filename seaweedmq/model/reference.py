"""Payloads by reference: the value of a record is a payload that was uploaded before the record was sent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PayloadReference:
    """The place of a record's payload, and what identifies its content."""

    uri: str
    """Path relative to the storage root, ``blobs/<namespace>/<topic>/<uid>/<day>/<id>``. It is resolved only in the
    storage of the record's own topic, so that a record cannot refer to the payload of another topic or server."""
    size_bytes: int
    content_type: str
    sha256: bytes
    """Digest of the whole payload, 32 bytes."""
    part_bytes: int = 0
    """Size of each part but the last if the payload is in several objects ``<uri>/<part>``; 0 if it is in one."""
