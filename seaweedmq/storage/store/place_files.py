"""The files of segments on any place, for readers outside the cluster. Its calls run in threads."""

import asyncio
from collections.abc import Mapping

from seaweedmq.codec.paths import topic_dir
from seaweedmq.errors import NotFound
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.faults import failing
from seaweedmq.storage.place import Place, RangeReader
from seaweedmq.storage.store.removed import scan_removed


class PlaceFiles:
    """A ``ports.StoredFiles``."""

    def __init__(self, place: Place) -> None:
        self._place = place

    async def check(self) -> None:
        """Raise StorageFailed unless the storage answers."""
        await asyncio.to_thread(self._place.exists)

    async def list_files(
        self, topic: TopicName, segment: int, *, uid: int | None = None, covering: int | None = None
    ) -> list[SegmentFile]:
        """List the log and table files of a segment, ordered by base offset."""
        del uid, covering  # the place knows the uid of its topic; each listing is new

        def listed() -> list[SegmentFile]:
            with failing("list files of", self._place.where(topic_dir(topic))):
                return self._place.segment_files(topic, segment)

        files = await asyncio.to_thread(listed)
        return sorted(files, key=lambda f: (f.base_offset, f.kind, f.writer, f.end_offset or 0))

    async def removed(self, topic: TopicName, uid: int) -> Mapping[int, int]:
        """Return segment -> offset below which retention recorded that it removed the records."""

        def scanned() -> Mapping[int, int]:
            with failing("list files of", self._place.where(topic_dir(topic))):
                return scan_removed(self._place, topic, uid)

        return await asyncio.to_thread(scanned)

    async def open(self, file: SegmentFile) -> "PlaceLogReader":
        """Open a log file."""
        try:
            return PlaceLogReader(file.path, await asyncio.to_thread(self._place.open_reader, file.path))
        except FileNotFoundError:
            raise _deleted(file.path) from None

    async def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open a table for blocking reads."""
        return await asyncio.to_thread(self._place.open_input, file)


class PlaceLogReader:
    """A ``ports.LogReader``."""

    def __init__(self, path: str, reader: RangeReader) -> None:
        self._path = path
        self._reader = reader

    async def read(self, position: int, length: int) -> Frames:
        """Read up to ``length`` bytes."""
        with failing("read", self._path):
            try:
                return await asyncio.to_thread(self._reader.read_at, position, length)
            except FileNotFoundError:
                raise _deleted(self._path) from None

    async def close(self) -> None:
        """Close the file."""
        self._reader.close()


def _deleted(path: str) -> NotFound:
    return NotFound(f"{path} was deleted: list the segment's files again")
