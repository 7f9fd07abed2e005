"""The end of a long poll, by the rule of Apache Kafka's ``DelayedFetch``: compare sizes, without reading.

A partition counts the bytes between the consumer's offset and the high watermark, at most its share of the reply.
Counting whole batches that fit instead would wait out every poll that requests as much as fits.
"""

from typing import Generic, TypeVar

Key = TypeVar("Key")


class FetchWait(Generic[Key]):
    """The bytes that a Fetch could return by now, compared with the bytes that it waits for."""

    def __init__(self, bytes_min: int, reply_bytes_max: int) -> None:
        """Create the wait for a reply of ``bytes_min``, which the client requests, but at most ``reply_bytes_max``."""
        self._wanted = min(bytes_min, reply_bytes_max)
        self._readable: dict[Key, int] = {}
        self._total = 0

    @property
    def is_enough(self) -> bool:
        """Whether the reply is large enough to send."""
        return self._total >= self._wanted

    def count(self, partition: Key, readable_bytes: int) -> None:
        """Replace the bytes counted for a partition."""
        self._total += readable_bytes - self._readable.get(partition, 0)
        self._readable[partition] = readable_bytes
