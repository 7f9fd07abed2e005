"""Staged batches of sinks below a topic's folder: frames, manifests, and marks of completed batches.

Blocking; for processes outside the cluster. A batch without a manifest is being staged, or was abandoned. Any process
that finds a batch with a manifest must complete it. ``done.json`` names the last completed batch. All of these are
deleted with the topic. A mark beside the topics records that a sink has written to a topic, in case the topic is
recreated.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence

from seaweedmq.codec import paths, staged
from seaweedmq.codec.state.documents import topic_from_document
from seaweedmq.errors import NotFound, SeaweedMQError, StorageFailed
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.staged import BatchProgress, CompletedBatch, Manifest, StagedFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.file_io import unique_suffix
from seaweedmq.storage.place import Place
from seaweedmq.storage.staged_frames import StagedFrames

MANIFEST = "manifest.json"
PROGRESS = "progress.json"
DONE = "done.json"
CLOCK_SLACK_US = US_PER_S
"""Tolerance for file dates, which have the precision of a kernel tick and of a float."""
ONCE = "w-"
"""Prefix of the ids of sinks that write once: no process completes their batches later."""


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
        raise storage_failed("read", place.where(path), error) from error


class StagingFile:
    """A file of one task's frames that is being written. ``close`` deletes it unless ``keep`` is set."""

    def __init__(self, place: Place, folder: str, label: str) -> None:
        self._name = f"{label}-{unique_suffix()}.frames"
        self._size_bytes = 0
        self._records = 0
        self._writer = place.open_writer(f"{folder}/{self._name}")

    def write(self, frames: Sequence[Frames], records: int) -> None:
        """Append whole frames that hold ``records`` records in all."""
        self._writer.write(frames)
        self._size_bytes += sum(map(len, frames))
        self._records += records

    def finish(self) -> StagedFile:
        """Flush the file and return its description."""
        self._writer.finish()
        return StagedFile(self._name, self._size_bytes, self._records)

    def close(self, *, keep: bool) -> None:
        """Close the file, and delete it unless ``keep``; a second call has no effect."""
        self._writer.close(keep=keep)


class StagedBatch:
    """The folder of one batch. Methods raise StorageFailed; those that read a document also raise Corrupt."""

    def __init__(self, place: Place, topic: TopicName, sink: str, batch: int) -> None:
        self._place = place
        self._topic = topic
        self._sink = sink
        self.batch = batch
        self._folder = paths.batch_dir(topic, sink, batch)

    @contextlib.contextmanager
    def staging(self, label: str) -> Iterator[StagingFile]:
        """Open a file of this batch for a task, deleted if the block fails; raises NotFound without the topic."""
        with self._failing("stage into"):
            try:
                self._place.make_below(paths.topic_dir(self._topic), self._folder)
            except FileNotFoundError:
                raise _missing(self._place, self._topic) from None
            file = StagingFile(self._place, self._folder, label)
            done = False
            try:
                yield file
                done = True
            finally:
                file.close(keep=done)

    def manifest(self) -> Manifest | None:
        """Return the batch's manifest; None before there is one."""
        data = self._read(MANIFEST)
        return (
            None if data is None else staged.manifest_from_bytes(data, self._place.where(f"{self._folder}/{MANIFEST}"))
        )

    def put_manifest(self, manifest: Manifest) -> Manifest:
        """Write the manifest durably unless the batch has one; return the batch's manifest."""
        with self._failing("write the manifest of"):
            try:
                self._place.create(f"{self._folder}/{MANIFEST}", staged.manifest_to_bytes(manifest))
            except FileExistsError:
                self._place.sync(self._folder)
        stored = self.manifest()
        assert stored is not None, "the manifest exists: it was just written"
        return stored

    def progress(self) -> BatchProgress:
        """Return the last recorded progress."""
        data = self._read(PROGRESS)
        return (
            BatchProgress()
            if data is None
            else staged.progress_from_bytes(data, self._place.where(f"{self._folder}/{PROGRESS}"))
        )

    def note(self, progress: BatchProgress) -> None:
        """Replace the recorded progress durably."""
        with self._failing("record the progress of"):
            self._place.replace(f"{self._folder}/{PROGRESS}", staged.progress_to_bytes(progress))

    def begun_us(self) -> int:
        """Return the time of the manifest by the storage's clock, in microseconds; 0 if that was set back since."""
        with self._failing("get the date of"):
            begun_us = self._place.modified_us(f"{self._folder}/{MANIFEST}")
            return begun_us if begun_us <= self._place.clock_s(self._folder) * US_PER_S + CLOCK_SLACK_US else 0

    def discard(self, names: Iterable[str]) -> None:
        """Delete files of tasks whose work is not needed, and the folder once it is empty."""
        with self._failing("clear"):
            for name in names:
                self._place.delete(f"{self._folder}/{name}")
            self._place.remove_empty(self._folder)

    def remove(self) -> None:
        """Delete the batch's folder."""
        with self._failing("clear"):
            self._place.remove_tree(self._folder)

    @property
    def where(self) -> str:
        """Location of the batch's folder, for messages."""
        return self._place.where(self._folder)

    def frames(self, files: Sequence[StagedFile]) -> StagedFrames:
        """Return the frames of files of this batch; the caller closes them."""
        return StagedFrames(self._place, self._folder, files)

    def _read(self, name: str) -> bytes | None:
        with self._failing("read"):
            try:
                return self._place.read(f"{self._folder}/{name}")
            except FileNotFoundError:
                return None

    def _failing(self, action: str) -> contextlib.AbstractContextManager[None]:
        return failing(action, self.where)


class StagedSink:
    """The folder of one sink; its methods raise StorageFailed."""

    def __init__(self, place: Place, topic: TopicName, sink: str) -> None:
        self._place = place
        self._topic = topic
        self._sink = sink
        self._folder = paths.sink_dir(topic, sink)

    def batch(self, number: int) -> StagedBatch:
        """Return the batch of this number."""
        return StagedBatch(self._place, self._topic, self._sink, number)

    def bind_topic(self, topic_uid: int) -> None:
        """Bind the sink to this topic; raises NotFound if it wrote to an earlier one of the name, or it was deleted."""
        folder = paths.sink_marks_dir(self._topic)
        mark = f"{folder}/{paths.sink_mark(self._sink, topic_uid)}"
        with failing("bind a sink in", self._place.where(folder)):
            if self._place.has(mark):
                return
            try:
                self._place.make_below(f"{paths.TOPICS}/{self._topic.namespace}", folder)
            except FileNotFoundError:
                raise _missing(self._place, self._topic) from None
            if any(paths.sink_of_mark(other) == self._sink for other in self._place.names(folder)):
                raise NotFound(
                    f"topic {self._topic} was deleted and created again since this query began to write to it: restart "
                    "the query with another checkpoint to fill the new topic"
                )
            self._place.touch(mark, durable=True)

    def done(self) -> CompletedBatch | None:
        """Return the last completed batch; None before the first. Raises Corrupt if ``done.json`` is unreadable."""
        path = f"{self._folder}/{DONE}"
        with failing("read", self._place.where(path)):
            try:
                return staged.done_from_bytes(self._place.read(path), self._place.where(path))
            except FileNotFoundError:
                return None

    def finish(self, done: CompletedBatch) -> None:
        """Mark a batch as completed, durably, unless a later one is; then delete its folder and earlier ones."""
        path = f"{self._folder}/{DONE}"

        def raised(content: bytes | None) -> bytes | None:
            if content is not None and staged.done_from_bytes(content, self._place.where(path)).batch >= done.batch:
                return None
            return staged.done_to_bytes(done)

        with failing("mark a completed batch of", self._place.where(self._folder)):
            self._place.update(path, raised)
            for name, _ in self._place.entries(self._folder):
                if name.isdecimal() and int(name) <= done.batch:
                    self._place.remove_tree(f"{self._folder}/{name}")

    def remove(self) -> None:
        """Delete the folder of a sink that will never run again."""
        with failing("clear", self._place.where(self._folder)):
            self._place.remove_tree(self._folder)


def _missing(place: Place, topic: TopicName) -> SeaweedMQError:
    """Return the error of a topic without a folder; a storage without any topics is not mounted."""
    if not place.has(paths.TOPICS):
        return StorageFailed(
            f"storage {place} holds no topics, so it is not mounted or is another folder: mount it, then retry"
        )
    return NotFound(f"topic {topic} is no longer in the storage: it was deleted")
