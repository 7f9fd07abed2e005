"""What is on its way to consumers, all together, within a bound: when it is short, replies are smaller."""


class FetchMemory:
    """Bytes of replies from before they are gathered until they are written."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self.used = 0

    def reply(self) -> "ReplyMemory":
        """For one reply, which holds nothing yet."""
        return ReplyMemory(self)

    @property
    def free(self) -> int:
        """Bytes that nobody holds."""
        return max(0, self._limit - self.used)


class ReplyMemory:
    """What one reply holds of it."""

    def __init__(self, memory: FetchMemory) -> None:
        self._memory = memory
        self._held = 0

    def reserve(self, bytes_max: int) -> int:
        """Hold as much of this as is free, in the place of what was held; return how much. It may be nothing, and the
        first batch of a reply goes all the same."""
        self.release()
        self.hold(min(bytes_max, self._memory.free))
        return self._held

    def hold(self, size_bytes: int) -> None:
        """Hold this, in the place of what was held."""
        self._memory.used += size_bytes - self._held
        self._held = size_bytes

    def release(self) -> None:
        """Hold nothing any more. Again is no error."""
        self.hold(0)
