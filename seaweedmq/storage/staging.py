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

from seaweedmq.codec.frame import HEADER_BYTES, FrameHeader, decode_header
from seaweedmq.codec.paths import (
    TOPIC_DOCUMENT,
    TOPICS,
    batch_dir,
    document_path,
    sink_dir,
    sink_mark,
    sink_marks_dir,
    sink_of_mark,
)
from seaweedmq.codec.staged import (
    done_from_bytes,
    done_to_bytes,
    manifest_from_bytes,
    manifest_to_bytes,
    progress_from_bytes,
    progress_to_bytes,
)
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import Corrupt, NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.staged import BatchProgress, CompletedBatch, Manifest, StagedFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.store.faults import storage_failed
from seaweedmq.storage.store.file_io import (
    NO_LINKS,
    clock_s,
    publish,
    read_at,
    sync_directories,
    sync_file,
    unique_suffix,
    write_all,
    written_aside,
)

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
DONE = "done.json"
CLOCK_SLACK_NS = 1_000_000_000
"""Clocks that date files are read to a tick of the kernel, and as a float."""
ONCE = "w-"
"""What the ids of sinks begin with that write once: nobody comes back to finish what they began."""
REMOVALS_MAX = 10
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
                raise _missing(self._root, self._topic) from None
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

    def progress(self) -> BatchProgress:
        """As it was noted last."""
        data = self._read(PROGRESS)
        return BatchProgress() if data is None else progress_from_bytes(data, str(self.folder / PROGRESS))

    def note(self, progress: BatchProgress) -> None:
        """In place of what was noted before; durable."""
        with self._failing("note the progress of"), written_aside(self.folder) as aside:
            aside.write_bytes(progress_to_bytes(progress))
            publish(self._root, (aside, self.folder / PROGRESS))

    def begun_us(self) -> int:
        """Return the earliest time at which the manifest was written, by the clock of the storage; microseconds. 0 if
        that clock was set back since: nothing is known then."""
        with self._failing("look at"):
            begun_ns = (self.folder / MANIFEST).stat().st_mtime_ns
            return begun_ns // 1_000 if begun_ns <= clock_s(self.folder) * 1e9 + CLOCK_SLACK_NS else 0

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
            remove_tree(self.folder)

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
                raise _missing(self._root, self._topic) from None
            if any(sink_of_mark(other.name) == self._sink for other in folder.iterdir()):
                raise NotFound(
                    f"topic {self._topic} was deleted and created again since this query began to write to it: begin "
                    "the query anew with another checkpoint to fill the new topic"
                )
            mark.touch()
            sync_directories(self._root, folder)

    def done(self) -> CompletedBatch | None:
        """What was finished last. Raises Corrupt."""
        path = self._folder / DONE
        with failing("read", path):
            try:
                return done_from_bytes(path.read_bytes(), str(path))
            except FileNotFoundError:
                return None

    def finish(self, done: CompletedBatch) -> None:
        """A batch is published: its mark is what counts from now on, so it comes first. One of a later batch stays."""
        before = self.done()
        with failing("mark as done a batch of", self._folder):
            if before is None or before.batch < done.batch:
                with written_aside(self._folder) as aside:
                    aside.write_bytes(done_to_bytes(done))
                    publish(self._root, (aside, self._folder / DONE))
            for folder in self._folder.iterdir():
                if folder.name.isdecimal() and int(folder.name) <= done.batch:
                    remove_tree(folder)

    def remove(self) -> None:
        """The whole folder: the sink comes never again."""
        with failing("clear", self._folder):
            remove_tree(self._folder)


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


def remove_tree(folder: Path) -> None:
    """Also while others remove it, or put the last of what they had to put there."""
    for _ in range(REMOVALS_MAX):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def _missing(root: Path, topic: TopicName) -> SeaweedMQError:
    """The error of a topic without a folder: a storage without any topics is a mount that fell away."""
    if not (root / TOPICS).is_dir():
        return StorageFailed(
            f"storage {root} holds no topics, so it is not mounted or is another folder: mount it, then retry"
        )
    return NotFound(f"topic {topic} is no longer in the storage: it was deleted")


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
