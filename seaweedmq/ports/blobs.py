"""Payloads by reference, as clients and Spark tasks read them."""

from typing import Protocol


class BlobReader(Protocol):
    """Random access to the payloads that the records of one topic refer to.

    The caller has checked that the path belongs to the topic of its record (``codec.references.check_own``). A reader
    that serves other processes checks it again.
    """

    async def read(self, uri: str, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes from ``position`` on; none at the end of the payload.

        The reader joins the parts of a payload. It may return less than requested: the caller continues behind it.

        Args:
            uri: The path of the payload below the storage root, as the record names it.
            position: First byte, from 0.
            length: Number of bytes, from 1.

        Raises:
            NotFound: If there is no such payload, or its topic was deleted.
            InvalidArgument: If the path is not that of a payload of the topic.
            StorageFailed: If the storage cannot be read now.
            Unavailable: If no broker answers.
        """
