"""The end of a long poll, decided as Apache Kafka's ``DelayedFetch`` does: by comparing sizes, without reading.

A partition counts with what lies between the consumer's offset and the high watermark, at most with what its share of
the reply may hold. Counting whole batches that fit instead would wait out every poll that asks for as much as fits.
"""

from typing import Generic, TypeVar

Key = TypeVar("Key")


class FetchWait(Generic[Key]):
    """The bytes that a Fetch could be sent by now, against those that it waits for."""

    def __init__(self, bytes_min: int, reply_bytes_max: int) -> None:
        """
        Args:
            bytes_min: what the client asks for at least.
            reply_bytes_max: what may be sent at all; no more is waited for.
        """
        self._wanted = min(bytes_min, reply_bytes_max)
        self._readable: dict[Key, int] = {}
        self._total = 0

    @property
    def is_enough(self) -> bool:
        """Whether the reply is worth to be sent."""
        return self._total >= self._wanted

    def count(self, partition: Key, readable_bytes: int) -> None:
        """A partition has this much for the consumer, in the place of what was counted for it before."""
        self._total += readable_bytes - self._readable.get(partition, 0)
        self._readable[partition] = readable_bytes
