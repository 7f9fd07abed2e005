"""Payloads that records refer to, in the place of a storage: parts written aside, complete by one rename.

A blob counts once it has its final name. Until then its parts are in a hidden folder, where an interrupted upload finds
them again. Each part is a file that is flushed before it gets its name, so a name means a whole part. A payload of one
part is one file; others are a folder of parts. ``codec.paths`` has the names.

Calls block, and raise OSError unless they say otherwise.
"""

import datetime
import os
import shutil
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path

from seaweedmq.codec import paths
from seaweedmq.codec.paths import BlobName
from seaweedmq.errors import Closed, InvalidArgument, NotFound, Unavailable
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.messages.blobs import PARTS_MAX
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import StoredBlob
from seaweedmq.storage import file_io
from seaweedmq.storage.directory_place import DirectoryPlace


class PartWriter:
    """A part that is being written. It has its name after :meth:`keep` only."""

    def __init__(self, place: DirectoryPlace, folder: Path, number: int) -> None:
        self._place = place
        self._final = folder / paths.part_name(number)
        self._aside = file_io.temporary_name(folder)
        self._fd = os.open(self._aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._is_kept = self._is_closed = False
        self._lock = threading.Lock()
        """Held during each call: a cancelled caller's thread may still write when the file is closed."""

    def append(self, data: bytes | memoryview) -> None:
        """Write the next bytes."""
        with self._lock:
            self._check_open()
            file_io.write_all(self._fd, [data])

    def keep(self) -> None:
        """Make the part durable, then give it its name."""
        with self._lock:
            self._check_open()
            os.fsync(self._fd)
            self._aside.replace(self._final)
            self._is_kept = True
            self._place.sync_names(self._final.parent)

    def close(self) -> None:
        """Close the file; delete it unless it was kept."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            os.close(self._fd)
            if not self._is_kept:
                self._aside.unlink(missing_ok=True)

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"{self._final} was closed: its upload has ended")


def name_of(uri: str) -> BlobName:
    """Return the name of a blob's uri; InvalidArgument if it is none."""
    name = paths.parse_blob(uri)
    if name is None:
        raise InvalidArgument(f"{uri[:200]!r} is not the path of a payload: use that of a record's reference")
    return name


def find_blob(
    place: DirectoryPlace, topic: TopicName, uid: int, blob_id: str, days: Collection[str]
) -> StoredBlob | None:
    """Return what earlier uploads of an id left on one of these days; a complete blob is preferred."""
    names = [paths.blob_name(topic, uid, day, blob_id) for day in days]
    for name in names:
        parts = _complete_parts(place, name)
        if parts is not None:
            return StoredBlob(uri=name.uri, parts=parts, is_complete=True)
    for name in names:
        if place.path(name.staged).is_dir():
            return StoredBlob(uri=name.uri, parts=_parts_in(place.path(name.staged)), is_complete=False)
    return None


def read_part(place: DirectoryPlace, blob: StoredBlob, number: int, position: int, length: int) -> bytes:
    """Read up to ``length`` bytes of one part; raise FileNotFoundError if it was deleted."""
    return _read(_part_path(place, blob, number), position, length)


def complete_blob(place: DirectoryPlace, name: BlobName, part_count: int, size_bytes: int) -> None:
    """Give an uploaded blob its final name, durably. A repeated call has no effect.

    Raises:
        InvalidArgument: If a part is missing, or the parts are not of one size, the last one excepted, or do not add up
            to ``size_bytes``.
        Unavailable: If there is no such upload: its topic was deleted, or it was swept.
    """
    parts = _complete_parts(place, name)
    staged, final = place.path(name.staged), place.path(name.uri)
    if parts is None:
        if not staged.is_dir():
            raise Unavailable(f"upload {name.id} of {name.topic} is gone, swept or deleted: retry with all parts")
        parts = _parts_in(staged)
        for number, _ in parts[part_count:]:  # of an earlier attempt with a longer payload
            (staged / paths.part_name(number)).unlink(missing_ok=True)
        parts = parts[:part_count]
    _check_parts(name, parts, part_count, size_bytes)
    if not final.exists():
        if part_count == 1:
            (staged / paths.part_name(0)).replace(final)
            shutil.rmtree(staged)
        else:
            file_io.remove_stale_temporaries(staged, float("inf"))
            staged.replace(final)
    os.utime(final)  # The sweep counts from now: parts may be old, and a record is about to refer to them.
    place.sync_names(final.parent)  # Also for an earlier call, which may have ended between the rename and this.


def read_blob(place: DirectoryPlace, name: BlobName, position: int, length: int) -> bytes:
    """Read up to ``length`` bytes from ``position``, also across parts; fewer only at the end of the blob.

    NotFound is raised if there is no such blob.
    """
    path = place.path(name.uri)
    try:
        if not path.is_dir():
            return _read(path, position, length)
        part_bytes = (path / paths.part_name(0)).stat().st_size
        data = bytearray()
        while len(data) < length:
            number, at = divmod(position + len(data), max(1, part_bytes))  # Damage may have emptied part 0.
            part = path / paths.part_name(number)
            if number and not part.exists():
                break
            piece = _read(part, at, min(length - len(data), part_bytes - at))
            if not piece:
                break
            data += piece
        return bytes(data)
    except FileNotFoundError as error:
        raise NotFound(
            f"payload {name.uri} is missing in {place}: it was deleted, or never completely uploaded"
        ) from error


def list_blobs(place: DirectoryPlace, topic: TopicName, uid: int) -> list[tuple[BlobName, int]]:
    """Return the complete blobs of a topic with the time of their last change, in microseconds since 1970, by name."""
    found = []
    for day, folder in _days(place, topic, uid):
        for entry in _names(folder):
            name = paths.parse_blob(f"{paths.blob_days(topic, uid)}/{day}/{entry}")
            if name is not None:
                with suppress(FileNotFoundError):
                    found.append((name, _changed_us(folder / entry)))
    return found


def blob_size(place: DirectoryPlace, name: BlobName) -> int | None:
    """Return the size of a complete blob in bytes; None if there is none."""
    parts = _complete_parts(place, name)
    return None if parts is None else sum(size for _, size in parts)


def delete_old_blobs(
    place: DirectoryPlace, topic: TopicName, uid: int, before_us: int, is_named: Callable[[str], bool]
) -> list[BlobName]:
    """Delete the blobs, and what is left of uploads, that changed last before a time and that no record names.

    Args:
        place: The storage.
        topic: The topic of the blobs.
        uid: Its uid.
        before_us: The time, in microseconds since 1970. It is compared with the dates of files, and with the day of the
            upload.
        is_named: Returns whether a table or a log names a uri.

    Returns:
        The deleted complete blobs.
    """
    deleted = []
    last_day = datetime.datetime.fromtimestamp(before_us / US_PER_S, datetime.UTC).date().isoformat()
    for day, folder in _days(place, topic, uid):
        if day > last_day:  # A new upload continues what is in the folders of the last two days.
            continue
        for entry in _names(folder, is_hidden=True):
            path = folder / entry
            name = paths.parse_blob(f"{paths.blob_days(topic, uid)}/{day}/{entry.removeprefix(paths.UPLOAD_PREFIX)}")
            with suppress(FileNotFoundError):
                if name is None or _changed_us(path) >= before_us:
                    continue
                is_complete = entry == name.id
                if is_complete and is_named(name.uri):
                    continue
                shutil.rmtree(path) if path.is_dir() else path.unlink()
                if is_complete:
                    deleted.append(name)
        with suppress(OSError):  # not empty
            if folder.stat().st_mtime_ns * US_PER_S // 1_000_000_000 < before_us:
                folder.rmdir()
    return deleted


def _days(place: DirectoryPlace, topic: TopicName, uid: int) -> list[tuple[str, Path]]:
    days = paths.blob_days(topic, uid)
    return [(day, place.path(f"{days}/{day}")) for day in place.names(days)]


def _names(folder: Path, *, is_hidden: bool = False) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError):
        return sorted(path.name for path in folder.iterdir() if is_hidden or not path.name.startswith("."))
    return []


def _changed_us(path: Path) -> int:
    """Return the time of the last change of a blob, or of the youngest file in its folder."""
    dates_ns = [path.stat().st_mtime_ns]
    if path.is_dir():
        dates_ns += [entry.stat().st_mtime_ns for entry in os.scandir(path)]
    return max(dates_ns) * US_PER_S // 1_000_000_000


def _complete_parts(place: DirectoryPlace, name: BlobName) -> list[tuple[int, int]] | None:
    path = place.path(name.uri)
    if path.is_dir():
        return _parts_in(path)
    with suppress(FileNotFoundError):
        return [(0, path.stat().st_size)]
    return None


def _parts_in(folder: Path) -> list[tuple[int, int]]:
    parts = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            number = paths.parse_part_name(entry.name)
            if number is not None:
                parts.append((number, entry.stat().st_size))
    return sorted(parts)


def _part_path(place: DirectoryPlace, blob: StoredBlob, number: int) -> Path:
    folder = place.path(blob.uri if blob.is_complete else name_of(blob.uri).staged)
    return folder if blob.is_complete and not folder.is_dir() else folder / paths.part_name(number)


def _check_parts(name: BlobName, parts: Sequence[tuple[int, int]], part_count: int, size_bytes: int) -> None:
    if not 0 < part_count <= PARTS_MAX:
        raise InvalidArgument(f"upload {name.id} has {part_count} parts: send 1 to {PARTS_MAX}, larger ones if needed")
    if [number for number, _ in parts] != list(range(part_count)):
        raise InvalidArgument(f"upload {name.id} lacks parts: {len(parts)} of {part_count} are there; send the others")
    sizes = [size for _, size in parts]
    if len(set(sizes[:-1])) > 1 or (part_count > 1 and not 0 < sizes[-1] <= sizes[0]):
        raise InvalidArgument(f"upload {name.id} has parts of different sizes: only the last one may be shorter")
    if sum(sizes) != size_bytes:
        raise InvalidArgument(f"upload {name.id} has {sum(sizes)} bytes in its parts, not {size_bytes}: send it again")


def _read(path: Path, position: int, length: int) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return file_io.read_at(fd, position, length)
    finally:
        os.close(fd)
