"""How much a broker may send to a reader. Pure.

Exposure of the client's memory = bytes received and not taken + credit given and not used. It stays within the reader's
share of the subscriber's buffer, or one message if that is larger.
"""


class ReceiveCredit:
    """Of one reader."""

    def __init__(self, credit_bytes_min: int) -> None:
        self._min_bytes = credit_bytes_min
        self._given_bytes = 0
        """Credit that the broker has not used; below zero if its last message was larger."""
        self._held_bytes = 0
        """Received and not taken."""
        self._largest_bytes = 0
        """Message so far."""

    def open(self, share_bytes: int) -> int:
        """The credit of a new stream; what the last one had not used is void."""
        self._given_bytes = max(self._min_bytes, max(share_bytes, self._largest_bytes) - self._held_bytes)
        return self._given_bytes

    def received(self, size_bytes: int) -> None:
        """A message came."""
        self._given_bytes -= size_bytes
        self._largest_bytes = max(self._largest_bytes, size_bytes)

    def hold(self, size_bytes: int) -> None:
        """A part of it waits to be taken."""
        self._held_bytes += size_bytes

    def taken(self, size_bytes: int) -> None:
        """Somebody took it."""
        self._held_bytes -= size_bytes

    def more(self, share_bytes: int) -> int:
        """Credit to give now; 0 while it is too little to pay for a message."""
        target = max(share_bytes, self._largest_bytes)
        free = target - self._held_bytes - self._given_bytes
        if free * 4 < target:
            return 0
        self._given_bytes += free
        return free
