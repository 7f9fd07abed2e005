"""The place of a cluster's storage: what code that reads and writes files of the layout needs, on any kind of storage.

``codec.paths`` names the files and folders; a ``Place`` reads, writes and lists them. ``directory_place`` is a mounted
directory, ``object_place`` a prefix of an object store, and ``places`` tells them apart by their URI.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple, Protocol, Self, TypeAlias

from seaweedmq.codec import paths
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import BlockingInput

logger = logging.getLogger(__name__)

_reported: set[str] = set()
_REPORTED_MAX = 10_000

State: TypeAlias = Hashable
"""A value that differs for another content of a name."""
Change: TypeAlias = Callable[[bytes | None], bytes | None]
"""Function from the content of a file, None without one, to the new content; None: leave it as it is."""


class Entry(NamedTuple):
    """An entry of a folder."""

    name: str
    is_folder: bool


class RangeReader(Protocol):
    """An open file, for reads of ranges."""

    def read_at(self, position: int, length: int) -> Frames:
        """Read ``length`` bytes from ``position``; fewer only at the end of the file. Raises OSError."""

    def close(self) -> None:
        """Close the file; a second call has no effect."""


class PlaceWriter(Protocol):
    """A new file that is being written, in memory of a few MiB."""

    def write(self, chunks: Sequence[Frames]) -> None:
        """Append bytes."""

    def finish(self) -> None:
        """Make the file durable, under its name; nothing is written afterwards."""

    def close(self, *, keep: bool) -> None:
        """Release the file, and delete it unless ``keep``; a second call has no effect."""


class Place(ABC):
    """The place of a storage. Paths are relative to it, as ``codec.paths`` returns them, and folders have no slash.

    The calls are blocking. They complete, or raise OSError or StorageFailed; a missing file is a FileNotFoundError. A
    place is a small value: equal ones are the same storage, and it pickles without a secret.
    """

    __slots__ = ()

    def of(self, topic: Topic) -> Self:
        """Return the place for writes to this topic, which may be deleted and recreated meanwhile."""
        return self

    @abstractmethod
    def where(self, path: str) -> str:
        """Return the location of a path for messages."""

    @abstractmethod
    def uri(self, path: str) -> str:
        """Return the URI of a path for other programs."""

    @abstractmethod
    def exists(self) -> bool:
        """Whether the storage is there: a directory, which may also be an empty mount point, or a bucket."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """Read a whole file."""

    @abstractmethod
    def open_input(self, file: SegmentFile) -> BlockingInput:
        """Open a log file or table for Arrow; raises NotFound if it was deleted, or StorageFailed."""

    @abstractmethod
    def open_reader(self, path: str, *, once: bool = False) -> RangeReader:
        """Open a file for reads of ranges; ``once``: they are not repeated, and need no cache."""

    @abstractmethod
    def has(self, path: str) -> bool:
        """Whether there is a file or folder of this name."""

    @abstractmethod
    def state(self, path: str) -> State | None:
        """Return a value that differs for another content of a file or folder; None if there is none."""

    @abstractmethod
    def modified_us(self, path: str) -> int:
        """Return the time of the last change of a file by the storage's clock, in microseconds since 1970 UTC."""

    @abstractmethod
    def touched_s(self, folder: str) -> float:
        """Return the time of the last change of a folder or its entries, in seconds since 1970 UTC."""

    @abstractmethod
    def clock_s(self, folder: str) -> float:
        """Read the clock that dates the files of a folder, in seconds since 1970 UTC."""

    @abstractmethod
    def create(self, path: str, content: Frames) -> None:
        """Create a file atomically and durably; raises FileExistsError if another call did so first."""

    @abstractmethod
    def replace(self, path: str, content: bytes) -> None:
        """Create or replace a file atomically and durably, in a folder that exists; for files of one writer."""

    @abstractmethod
    def update(self, path: str, change: Change) -> None:
        """Replace a file by what ``change`` makes of its content, durably.

        An object store repeats this if another process changed the file meanwhile, or the answer was lost: so
        ``change`` must return None for its own result. A directory cannot tell, and the last process wins.
        """

    @abstractmethod
    def touch(self, path: str, *, durable: bool = False) -> None:
        """Create an empty file, or give an existing empty one the present date."""

    @abstractmethod
    def open_writer(self, path: str) -> PlaceWriter:
        """Begin a large file that does not exist, in a folder that exists."""

    @abstractmethod
    def delete(self, *paths: str) -> None:
        """Delete files; ignore deleted ones."""

    @abstractmethod
    def remove_tree(self, folder: str) -> None:
        """Delete a folder with all files below it, if it exists."""

    @abstractmethod
    def remove_empty(self, folder: str) -> None:
        """Delete a folder if it is empty; a failure is ignored."""

    @abstractmethod
    def make_below(self, existing: str, folder: str) -> None:
        """Create a folder below ``existing``, with its parents; raises FileNotFoundError if that does not exist."""

    @abstractmethod
    def remove_stale_temporaries(self, folder: str, now_s: float) -> None:
        """Delete temporary files that killed processes left in a folder a day ago, by its clock."""

    @abstractmethod
    def refresh(self, folder: str) -> None:
        """Make sure that the next listing of a folder shows every file that was complete before this call."""

    @abstractmethod
    def sync(self, folder: str) -> None:
        """Make the names in a folder, and its own name, durable."""

    @abstractmethod
    def set_aside(self, path: str) -> None:
        """Hide a damaged table from listings, and keep its content; a missing one is ignored."""

    @abstractmethod
    def put_back(self, path: str) -> None:
        """Undo :meth:`set_aside`; a table that was not set aside is ignored."""

    @abstractmethod
    def is_settled(self, table: str) -> bool:
        """Whether readers that began before a table was published do without what it replaces, which may be deleted."""

    @abstractmethod
    def lasting_path(self, table: str) -> str:
        """Return the path by which a table can be read longest, even if it is replaced meanwhile."""

    @abstractmethod
    def parse_file(self, path: str) -> paths.SegmentFileName | None:
        """Return the parts of the path of a log file or table; None for any other path."""

    @abstractmethod
    def file_at(self, path: str) -> SegmentFile | None:
        """Return a log file or table with its size and date; None if its name is not that of a file."""

    @abstractmethod
    def listdir(self, folder: str) -> list[str]:
        """Return all names in a folder, hidden ones as well, unordered."""

    @abstractmethod
    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, hidden ones as well, ordered by name."""

    @abstractmethod
    def logs(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log files of a segment; none if it has no folder."""

    @abstractmethod
    def tables(self, topic: TopicName, segments: Iterable[int]) -> list[SegmentFile]:
        """List the tables of some segments; tables of other segments cost only their name."""

    def segment_files(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log and table files of a segment, unordered.

        Logs are listed first, so that a log converted meanwhile appears as a table. Names that begin with a dot are
        temporary, and fences are markers: both are skipped. Other foreign names, and entries that are not plain files,
        are skipped and logged once.
        """
        return self.logs(topic, segment) + self.tables(topic, [segment])

    def names(self, folder: str, suffix: str = "") -> list[str]:
        """Return the sorted names in a folder that are not hidden and end with ``suffix``; none without a folder."""
        try:
            names = self.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(name for name in names if not name.startswith(".") and name.endswith(suffix))


def report_foreign(where: str) -> None:
    """Log a foreign file once."""
    if where not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(where)
        logger.warning("foreign file ignored: %s is not a file of SeaweedMQ; move it away", where)
