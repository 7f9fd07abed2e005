"""What sinks put down below a topic's folder before it is published: frames, manifests, and marks of what is done.

Blocking; for processes outside the cluster. Names say what a thing is: a batch without a manifest is being staged, or
was given up; with one it is to be finished by whoever finds it; ``done.json`` names the last one that was. All of it
goes with the topic. That a sink has written to it is kept beside the topics, for when the name is taken again.
"""

import contextlib
import os
import shutil
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.documents import topic_from_document
from seaweedmq.codec.frame import HEADER_BYTES, FrameHeader, decode_header
from seaweedmq.codec.paths import (
    TOPIC_DOCUMENT,
    batch_dir,
    document_path,
    sink_dir,
    sink_mark,
    sink_marks_dir,
    sink_of_mark,
    staged_dir,
    topic_dir,
)
from seaweedmq.codec.staged import (
    done_from_bytes,
    done_to_bytes,
    manifest_from_bytes,
    manifest_to_bytes,
    progress_from_bytes,
    progress_to_bytes,
)
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.frames import Frames
from seaweedmq.model.staged import Done, Manifest, Progress, StagedFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.store.faults import storage_failed
from seaweedmq.storage.store.file_io import (
    NO_LINKS,
    TEMPORARY_PREFIX,
    clock_s,
    publish,
    read_at,
    remove_stale_temporaries,
    sync_directories,
    sync_file,
    unique_suffix,
    write_all,
    written_aside,
)

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
DONE = "done.json"
SWEPT_AGE_S = 86_400.0
"""What was staged longer ago, and has no manifest, is nobody's any more."""
DONE_AGE_S = 30 * 86_400.0
"""A sink that has finished nothing for so long is forgotten."""
ONCE = "w-"
"""What the ids of sinks begin with that write once: nobody comes back to finish what they began."""
REMOVALS_MAX = 10
SWEPT_MAX = 100
"""Folders that one sweep removes."""
OPEN_FILES_MAX = 64
"""Of the staged files of a batch: its segments read them side by side."""


def topic_in_storage(root: Path, name: TopicName) -> Topic:
    """The topic as ``topic.json`` has it.

    Raises:
        NotFound: no such topic there.
        Corrupt, StorageFailed: as they say.
    """
    path = root / document_path(name, TOPIC_DOCUMENT)
    try:
        return topic_from_document(path.read_bytes())
    except FileNotFoundError:
        raise NotFound(
            f"storage {root} holds no topic {name}: give the root that the brokers were started with"
        ) from None
    except OSError as error:
        raise storage_failed("read", str(path), error) from error


class StagedFrame(NamedTuple):
    """Where a frame lies."""

    file: int
    """Its number in the manifest."""
    position: int
    """Of its header, in bytes."""
    header: FrameHeader


class StagingFile:
    """One task's frames, being written. Whoever does not :meth:`finish` it leaves nothing."""

    def __init__(self, folder: Path, label: str) -> None:
        self._path = folder / f"{label}-{unique_suffix()}.frames"
        self._size_bytes = 0
        self._records = 0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, frames: Sequence[Frames], records: int) -> None:
        """Append whole frames with so many records in all."""
        write_all(self._fd, frames)
        self._size_bytes += sum(map(len, frames))
        self._records += records

    def finish(self) -> StagedFile:
        """Make it durable."""
        sync_file(self._fd)
        return StagedFile(self._path.name, self._size_bytes, self._records)

    def close(self, *, keep: bool) -> None:
        """Idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if not keep:
                self._path.unlink(missing_ok=True)  # first: closing may fail for lack of space
            os.close(fd)


class StagedBatch:
    """The folder of one batch. Methods raise StorageFailed; those that read a document Corrupt as well."""

    def __init__(self, root: Path, topic: TopicName, sink: str, batch: int) -> None:
        self._root = root
        self._topic = topic
        self._sink = sink
        self.batch = batch
        self.folder = root / batch_dir(topic, sink, batch)

    @contextlib.contextmanager
    def staging(self, label: str) -> Iterator[StagingFile]:
        """A file of this batch, for one task; gone again unless the block ends well.

        Raises:
            NotFound: the topic's folder is not there: it was deleted.
        """
        with self._failing("stage into"):
            try:
                for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
                    folder.mkdir(exist_ok=True)  # never the topic's: it would come to life again
            except FileNotFoundError:
                raise _deleted(self._topic) from None
            file = StagingFile(self.folder, label)
            done = False
            try:
                yield file
                done = True
            finally:
                file.close(keep=done)

    def manifest(self) -> Manifest | None:
        """The one that counts, if there is one."""
        data = self._read(MANIFEST)
        return None if data is None else manifest_from_bytes(data, str(self.folder / MANIFEST))

    def put_manifest(self, manifest: Manifest) -> Manifest:
        """Put it there unless there is one; return the one that counts."""
        with self._failing("write the manifest of"), written_aside(self.folder) as aside:
            aside.write_bytes(manifest_to_bytes(manifest))
            with aside.open("rb") as written:
                sync_file(written.fileno())
            final = self.folder / MANIFEST
            try:
                os.link(aside, final)
            except FileExistsError:
                pass
            except OSError as error:
                if error.errno not in NO_LINKS:
                    raise
                _write_new(final, manifest_to_bytes(manifest))
            sync_directories(self._root, self.folder)
        stored = self.manifest()
        assert stored is not None, "it was there a moment ago"
        return stored

    def progress(self) -> Progress:
        """As it was noted last."""
        data = self._read(PROGRESS)
        return Progress() if data is None else progress_from_bytes(data, str(self.folder / PROGRESS))

    def note(self, progress: Progress) -> None:
        """In place of what was noted before; durable."""
        with self._failing("note the progress of"), written_aside(self.folder) as aside:
            aside.write_bytes(progress_to_bytes(progress))
            publish(self._root, (aside, self.folder / PROGRESS))

    def begun_ago_s(self) -> float:
        """How long ago the manifest was put down, by the clock of the storage."""
        with self._failing("look at"):
            return clock_s(self.folder) - (self.folder / MANIFEST).stat().st_mtime

    def begun_us(self) -> int:
        """When the manifest was put down, by the clock of the storage; microseconds."""
        with self._failing("look at"):
            return (self.folder / MANIFEST).stat().st_mtime_ns // 1_000

    def discard(self, names: Iterable[str]) -> None:
        """Remove files of tasks whose work is not needed, and the folder if nothing is left."""
        with self._failing("clear"):
            for name in names:
                (self.folder / name).unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def remove(self) -> None:
        """The whole folder."""
        with self._failing("clear"):
            _remove_tree(self.folder)

    def _read(self, name: str) -> bytes | None:
        with self._failing("read"):
            try:
                return (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def _failing(self, action: str) -> contextlib.AbstractContextManager[None]:
        return failing(action, self.folder)


class StagedSink:
    """The folder of one sink. Methods raise StorageFailed."""

    def __init__(self, root: Path, topic: TopicName, sink: str) -> None:
        self._root = root
        self._topic = topic
        self._sink = sink
        self._folder = root / sink_dir(topic, sink)

    def batch(self, number: int) -> StagedBatch:
        return StagedBatch(self._root, self._topic, self._sink, number)

    def keep_to(self, topic_uid: int) -> None:
        """From now on the sink writes to this topic, and to no later one of its name.

        Raises:
            NotFound: it has written to an earlier one; or there is no such topic any more.
        """
        folder = self._root / sink_marks_dir(self._topic)
        mark = folder / sink_mark(self._sink, topic_uid)
        with failing("keep a sink in", folder):
            if mark.exists():
                return
            try:
                for each in (folder.parent, folder):
                    each.mkdir(exist_ok=True)
            except FileNotFoundError:
                raise _deleted(self._topic) from None
            if any(sink_of_mark(other.name) == self._sink for other in folder.iterdir()):
                raise NotFound(
                    f"topic {self._topic} was deleted and created again since this query began to write to it: begin "
                    "the query anew with another checkpoint to fill the new topic"
                )
            mark.touch()
            sync_directories(self._root, folder)

    def done(self) -> Done | None:
        """What was finished last. Raises Corrupt."""
        path = self._folder / DONE
        with failing("read", path):
            try:
                return done_from_bytes(path.read_bytes(), str(path))
            except FileNotFoundError:
                return None

    def finish(self, done: Done) -> None:
        """A batch is published: its mark is what counts from now on, so it comes first. One of a later batch stays."""
        before = self.done()
        with failing("mark as done a batch of", self._folder):
            if before is None or before.batch < done.batch:
                with written_aside(self._folder) as aside:
                    aside.write_bytes(done_to_bytes(done))
                    publish(self._root, (aside, self._folder / DONE))
            for folder in self._folder.iterdir():
                if folder.name.isdecimal() and int(folder.name) <= done.batch:
                    _remove_tree(folder)

    def remove(self) -> None:
        """The whole folder: the sink comes never again."""
        with failing("clear", self._folder):
            _remove_tree(self._folder)


class _Index(NamedTuple):
    """Where every frame of a batch lies, a row each, in their order."""

    files: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    slot_mins: npt.NDArray[np.int64]
    slot_maxs: npt.NDArray[np.int64]


class StagedFrames:
    """The frames of a manifest, in order. Used by one thread at a time.

    Every segment asks for its own, more than once: all headers are read through once, 32 bytes a frame stay.
    """

    def __init__(self, folder: Path, files: Sequence[StagedFile]) -> None:
        self._folder = folder
        self._files = files
        self._open: OrderedDict[int, int] = OrderedDict()
        """Number of a file -> its descriptor; the one that was read last comes last."""

    def headers(self, lo: int = 0, hi: int = 1 << 16) -> Iterator[StagedFrame]:
        """Every frame whose slots overlap ``[lo, hi)``; payloads are not read.

        Raises:
            Corrupt: a file is gone, or not what was staged. StorageFailed: it can not be read.
        """
        index = self._index
        for row in np.flatnonzero((index.slot_mins < hi) & (index.slot_maxs >= lo)):
            number, position = int(index.files[row]), int(index.positions[row])
            yield StagedFrame(number, position, self._header(number, position))

    def payload(self, frame: StagedFrame) -> bytes:
        """Behind the header. Raises as :meth:`headers`."""
        header = frame.header
        data = self._read(frame.file, frame.position + HEADER_BYTES, header.payload_length)
        if len(data) != header.payload_length:
            raise Corrupt(f"{self._folder / self._files[frame.file].name} ends in the middle of a frame")
        # Here, since a frame that is divided gets a checksum of its own, by which brokers would take damage for data.
        if xxh3_64_intdigest(data) != header.payload_checksum:
            raise Corrupt(
                f"{self._folder / self._files[frame.file].name} is damaged behind byte {frame.position}: restore it, "
                "or remove the folder and begin the query anew from where the topic ends"
            )
        return data

    def close(self) -> None:
        """Idempotent."""
        while self._open:
            os.close(self._open.popitem()[1])

    @cached_property
    def _index(self) -> _Index:
        rows: list[tuple[int, int, int, int]] = []
        for number, file in enumerate(self._files):
            position = 0
            while position < file.size_bytes:
                header = self._header(number, position)
                rows.append((number, position, header.slot_min, header.slot_max))
                position += header.frame_bytes
            if position != file.size_bytes:
                raise Corrupt(f"{self._folder / file.name} has frames up to byte {position} of {file.size_bytes}")
        return _Index(*np.array(rows, np.int64).reshape(len(rows), 4).T)

    def _header(self, number: int, position: int) -> FrameHeader:
        try:
            return decode_header(self._read(number, position, HEADER_BYTES))
        except Corrupt as error:
            raise Corrupt(f"{self._folder / self._files[number].name} at byte {position}: {error}") from error

    def _read(self, number: int, position: int, length: int) -> bytes:
        path = self._folder / self._files[number].name
        try:
            if number not in self._open:
                if len(self._open) >= OPEN_FILES_MAX:
                    os.close(self._open.popitem(last=False)[1])
                self._open[number] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            self._open.move_to_end(number)
            return read_at(self._open[number], position, length)
        except FileNotFoundError:
            raise Corrupt(
                f"{path} is gone, which the manifest beside it names: restore it, or remove the folder and begin the "
                "query anew from where the topic ends"
            ) from None
        except OSError as error:
            raise storage_failed("read", str(path), error) from error


@contextlib.contextmanager
def failing(action: str, path: Path) -> Iterator[None]:
    """Errors of the operating system as StorageFailed."""
    try:
        yield
    except OSError as error:
        raise storage_failed(action, str(path), error) from error


def sweep(root: Path, topic: TopicName) -> int:
    """Remove what dead sinks left: batches that have no manifest, or that nobody will come back for, and marks of long
    ago, up to ``SWEPT_MAX``; and what was written aside when somebody was killed. Return how many folders went."""
    swept = 0
    top = root / staged_dir(topic)
    with failing("sweep", top), contextlib.suppress(FileNotFoundError):
        now_s = clock_s(root / topic_dir(topic))
        remove_stale_temporaries(root / topic_dir(topic), now_s)
        for sink in sorted(p for p in top.iterdir() if p.is_dir()):
            for folder in sorted(p for p in sink.iterdir() if p.is_dir()):
                with contextlib.suppress(FileNotFoundError):
                    is_old = now_s - _touched_s(folder) > SWEPT_AGE_S
                    is_wanted = (folder / MANIFEST).exists() and not sink.name.startswith(ONCE)
                    if is_old and swept < SWEPT_MAX and not is_wanted:
                        _remove_tree(folder)
                        swept += 1
            with contextlib.suppress(FileNotFoundError):
                age_s = now_s - _touched_s(sink)
                remove_stale_temporaries(sink, now_s)  # a change of the folder, whose age is known by then
                left = [path.name for path in sink.iterdir() if not path.name.startswith(TEMPORARY_PREFIX)]
                if age_s > (DONE_AGE_S if left else SWEPT_AGE_S) and left in ([], [DONE]):
                    _remove_tree(sink)
                    swept += 1
        _sweep_marks(root, topic, now_s)
    return swept


def _remove_tree(folder: Path) -> None:
    """Also while others remove it, or put the last of what they had to put there."""
    for _ in range(REMOVALS_MAX):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def _sweep_marks(root: Path, topic: TopicName, now_s: float) -> None:
    """A mark is as young as its sink is alive, to a day: it goes ``DONE_AGE_S`` after what that has in the topic."""
    with contextlib.suppress(FileNotFoundError):
        for mark in (root / sink_marks_dir(topic)).iterdir():
            with contextlib.suppress(FileNotFoundError):
                age_s = now_s - mark.stat().st_mtime
                if (root / sink_dir(topic, sink_of_mark(mark.name))).exists():
                    if age_s > SWEPT_AGE_S:
                        os.utime(mark)
                elif age_s > DONE_AGE_S:
                    mark.unlink()


def _deleted(topic: TopicName) -> NotFound:
    return NotFound(f"topic {topic} is not in the storage any more: it was deleted")


def _touched_s(folder: Path) -> float:
    """When something was last put there."""
    return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))


def _write_new(path: Path, data: bytes) -> None:
    """Where there are no links. Whoever comes second leaves what is there."""
    with contextlib.suppress(FileExistsError):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            try:
                write_all(fd, [data])
                sync_file(fd)
            except BaseException:
                path.unlink(missing_ok=True)  # half a document would be the one that counts
                raise
        finally:
            os.close(fd)
