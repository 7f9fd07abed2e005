"""Staged batches of sinks below a topic's folder: frames, manifests, and marks of completed batches.

Blocking; for processes outside the cluster. A batch without a manifest is being staged, or was abandoned. Any process
that finds a batch with a manifest must complete it. ``done.json`` names the last completed batch. All of these are
deleted with the topic. A mark beside the topics records that a sink has written to a topic, in case the topic is
recreated.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from seaweedmq.codec import paths, staged
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.staged import BatchProgress, CompletedBatch, Manifest, StagedFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.file_io import clock_s, sync_file, unique_suffix, write_all
from seaweedmq.storage.place import Place

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
DONE = "done.json"
CLOCK_SLACK_NS = 1_000_000_000
"""Tolerance for file dates, which have the precision of a kernel tick and of a float."""
ONCE = "w-"
"""Prefix of the ids of sinks that write once: no process completes their batches later."""
REMOVALS_MAX = 10


def topic_in_storage(place: Place, name: TopicName) -> Topic:
    """Read a topic from its ``topic.json``. Raises NotFound if the storage has no such topic."""
    path = paths.document_path(name, paths.TOPIC_DOCUMENT)
    try:
        return topic_from_document(place.read(path))
    except FileNotFoundError:
        raise NotFound(
            f"storage {place} holds no topic {name}: give the root that the brokers were started with"
        ) from None
    except OSError as error:
        raise storage_failed("read", str(place.path(path)), error) from error


class StagingFile:
    """A file of one task's frames that is being written. ``close`` deletes it unless ``keep`` is set."""

    def __init__(self, folder: Path, label: str) -> None:
        self._path = folder / f"{label}-{unique_suffix()}.frames"
        self._size_bytes = 0
        self._records = 0
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def write(self, frames: Sequence[Frames], records: int) -> None:
        """Append whole frames that hold ``records`` records in all."""
        write_all(self._fd, frames)
        self._size_bytes += sum(map(len, frames))
        self._records += records

    def finish(self) -> StagedFile:
        """Flush the file and return its description."""
        sync_file(self._fd)
        return StagedFile(self._path.name, self._size_bytes, self._records)

    def close(self, *, keep: bool) -> None:
        """Close the file, and delete it unless ``keep``; a second call has no effect."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            if not keep:
                self._path.unlink(missing_ok=True)  # first: closing may fail for lack of space
            os.close(fd)


class StagedBatch:
    """The folder of one batch. Methods raise StorageFailed; those that read a document also raise Corrupt."""

    def __init__(self, place: Place, topic: TopicName, sink: str, batch: int) -> None:
        self._place = place
        self._topic = topic
        self._sink = sink
        self.batch = batch
        self._path = paths.batch_dir(topic, sink, batch)
        self.folder = place.path(self._path)

    @contextlib.contextmanager
    def staging(self, label: str) -> Iterator[StagingFile]:
        """Open a file of this batch for a task, deleted if the block fails; raises NotFound without the topic."""
        with self._failing("stage into"):
            try:
                for folder in (self.folder.parent.parent, self.folder.parent, self.folder):
                    folder.mkdir(exist_ok=True)  # never the topic's folder: that would recreate a deleted topic
            except FileNotFoundError:
                raise _missing(self._place, self._topic) from None
            file = StagingFile(self.folder, label)
            done = False
            try:
                yield file
                done = True
            finally:
                file.close(keep=done)

    def manifest(self) -> Manifest | None:
        """Return the batch's manifest; None before there is one."""
        data = self._read(MANIFEST)
        return None if data is None else staged.manifest_from_bytes(data, str(self.folder / MANIFEST))

    def put_manifest(self, manifest: Manifest) -> Manifest:
        """Write the manifest durably unless the batch has one; return the batch's manifest."""
        with self._failing("write the manifest of"):
            try:
                self._place.create(f"{self._path}/{MANIFEST}", staged.manifest_to_bytes(manifest))
            except FileExistsError:
                self._place.sync_names(self.folder)
        stored = self.manifest()
        assert stored is not None, "the manifest exists: it was just written"
        return stored

    def progress(self) -> BatchProgress:
        """Return the last recorded progress."""
        data = self._read(PROGRESS)
        return BatchProgress() if data is None else staged.progress_from_bytes(data, str(self.folder / PROGRESS))

    def note(self, progress: BatchProgress) -> None:
        """Replace the recorded progress durably."""
        with self._failing("record the progress of"):
            self._place.replace(f"{self._path}/{PROGRESS}", staged.progress_to_bytes(progress))

    def begun_us(self) -> int:
        """Return the time of the manifest by the storage's clock, in microseconds; 0 if that was set back since."""
        with self._failing("get the date of"):
            begun_ns = (self.folder / MANIFEST).stat().st_mtime_ns
            return begun_ns // 1_000 if begun_ns <= clock_s(self.folder) * 1e9 + CLOCK_SLACK_NS else 0

    def discard(self, names: Iterable[str]) -> None:
        """Delete files of tasks whose work is not needed, and the folder once it is empty."""
        with self._failing("clear"):
            for name in names:
                self._place.delete(f"{self._path}/{name}")
            with contextlib.suppress(OSError):
                self.folder.rmdir()

    def remove(self) -> None:
        """Delete the batch's folder."""
        with self._failing("clear"):
            remove_tree(self.folder)

    def _read(self, name: str) -> bytes | None:
        with self._failing("read"):
            try:
                return self._place.read(f"{self._path}/{name}")
            except FileNotFoundError:
                return None

    def _failing(self, action: str) -> contextlib.AbstractContextManager[None]:
        return failing(action, self.folder)


class StagedSink:
    """The folder of one sink; its methods raise StorageFailed."""

    def __init__(self, place: Place, topic: TopicName, sink: str) -> None:
        self._place = place
        self._topic = topic
        self._sink = sink
        self._path = paths.sink_dir(topic, sink)
        self._folder = place.path(self._path)

    def batch(self, number: int) -> StagedBatch:
        """Return the batch of this number."""
        return StagedBatch(self._place, self._topic, self._sink, number)

    def bind_topic(self, topic_uid: int) -> None:
        """Bind the sink to this topic; raises NotFound if it wrote to an earlier one of the name, or it was deleted."""
        folder = self._place.path(paths.sink_marks_dir(self._topic))
        mark = folder / paths.sink_mark(self._sink, topic_uid)
        with failing("bind a sink in", folder):
            if mark.exists():
                return
            try:
                for each in (folder.parent, folder):
                    each.mkdir(exist_ok=True)
            except FileNotFoundError:
                raise _missing(self._place, self._topic) from None
            if any(paths.sink_of_mark(other.name) == self._sink for other in folder.iterdir()):
                raise NotFound(
                    f"topic {self._topic} was deleted and created again since this query began to write to it: restart "
                    "the query with another checkpoint to fill the new topic"
                )
            mark.touch()
            self._place.sync_names(folder)

    def done(self) -> CompletedBatch | None:
        """Return the last completed batch; None before the first. Raises Corrupt if ``done.json`` is unreadable."""
        path = self._folder / DONE
        with failing("read", path):
            try:
                return staged.done_from_bytes(self._place.read(f"{self._path}/{DONE}"), str(path))
            except FileNotFoundError:
                return None

    def finish(self, done: CompletedBatch) -> None:
        """Mark a batch as completed, durably, unless a later one is; then delete its folder and earlier ones."""
        before = self.done()
        with failing("mark a completed batch of", self._folder):
            if before is None or before.batch < done.batch:
                self._place.replace(f"{self._path}/{DONE}", staged.done_to_bytes(done))
            for folder in self._folder.iterdir():
                if folder.name.isdecimal() and int(folder.name) <= done.batch:
                    remove_tree(folder)

    def remove(self) -> None:
        """Delete the folder of a sink that will never run again."""
        with failing("clear", self._folder):
            remove_tree(self._folder)


def remove_tree(folder: Path) -> None:
    """Delete a folder, even while other processes delete it or add their last files."""
    for _ in range(REMOVALS_MAX):
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
        if not folder.exists():
            return
    shutil.rmtree(folder)


def _missing(place: Place, topic: TopicName) -> SeaweedMQError:
    """Return the error of a topic without a folder; a storage without any topics is not mounted."""
    if not place.path(paths.TOPICS).is_dir():
        return StorageFailed(
            f"storage {place} holds no topics, so it is not mounted or is another folder: mount it, then retry"
        )
    return NotFound(f"topic {topic} is no longer in the storage: it was deleted")
