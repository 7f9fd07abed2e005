"""Flow control of a reader: the credit that a broker has for further messages. Pure.

Memory exposure = bytes received and not taken + credit granted and not used. It stays within the reader's share of the
subscriber's buffer, or one message if that is larger.
"""


class ReceiveCredit:
    """The credit of one reader."""

    def __init__(self, credit_bytes_min: int) -> None:
        self._min_bytes = credit_bytes_min
        self._given_bytes = 0
        """The credit that the broker has not used; negative if its last message was larger."""
        self._held_bytes = 0
        """The bytes received and not taken."""
        self._largest_bytes = 0
        """The size of the largest message so far."""

    def open(self, share_bytes: int) -> int:
        """Return the credit of a new stream in bytes. Unused credit of the previous one is void."""
        self._given_bytes = max(self._min_bytes, max(share_bytes, self._largest_bytes) - self._held_bytes)
        return self._given_bytes

    def received(self, size_bytes: int) -> None:
        """Count a received message."""
        self._given_bytes -= size_bytes
        self._largest_bytes = max(self._largest_bytes, size_bytes)

    def hold(self, size_bytes: int) -> None:
        """Count bytes of a message that wait to be taken."""
        self._held_bytes += size_bytes

    def taken(self, size_bytes: int) -> None:
        """Count waiting bytes that were taken."""
        self._held_bytes -= size_bytes

    def more(self, share_bytes: int) -> int:
        """Return the credit to grant now, in bytes; 0 while it is not worth a message."""
        target = max(share_bytes, self._largest_bytes)
        free = target - self._held_bytes - self._given_bytes
        if free * 4 < target:
            return 0
        self._given_bytes += free
        return free
