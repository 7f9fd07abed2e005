"""Random access to one object on the event loop."""

from seaweedmq.errors import Closed, NotFound
from seaweedmq.ports import Objects


class ObjectLogReader:
    """A ``ports.LogReader`` of one object, whose deletion a read finds."""

    def __init__(self, objects: Objects, key: str, size_bytes: int) -> None:
        self._objects = objects
        self._key = key
        self._size_bytes = size_bytes
        self._is_closed = False

    async def read(self, position: int, length: int) -> memoryview:
        """Read ``length`` bytes from ``position`` in one request; fewer only at the end of the object."""
        if self._is_closed:
            raise Closed(f"{self._key} was closed by its reader")
        end = min(position + length, self._size_bytes)
        if end <= position:
            return memoryview(b"")
        try:
            return await self._objects.get_range(self._key, position, end)
        except NotFound:
            raise NotFound(f"{self._key} was deleted: list the segment's files again") from None

    async def close(self) -> None:
        """Reject later reads."""
        self._is_closed = True
