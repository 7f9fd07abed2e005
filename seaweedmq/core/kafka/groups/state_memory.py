"""Account of the memory that all coordinators of a broker hold for groups and offsets."""


class StateMemory:
    """Bytes that the shards of one broker hold together; loaded state counts even above the limit."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._is_short = False
        self._is_reported = False

    @property
    def free(self) -> int:
        """The bytes that groups may grow by."""
        return max(0, self.bytes_max - self.used)

    def has_room(self, more_bytes: int) -> bool:
        """Whether a group may grow by this many bytes."""
        is_short = more_bytes > self.free
        if is_short:
            self._is_short = True
        return not is_short

    def count(self, more_bytes: int) -> None:
        """Count more bytes of a shard, or (negative) fewer."""
        self.used += more_bytes
        assert self.used >= 0
        if self.used <= self.bytes_max // 2:
            self._is_short = self._is_reported = False

    def take_shortage(self) -> bool:
        """Whether a group was denied memory; once until half of it is free again."""
        is_unreported = self._is_short and not self._is_reported
        self._is_reported = self._is_short
        return is_unreported
