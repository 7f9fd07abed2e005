"""The place of a storage below a prefix of an object store. Blocking, for threads and Spark tasks.

Objects are not renamed, linked, locked or dated. So everything of a topic but its documents lies below its uid, the
name of a table has its date, and a replaced table stays until readers that know it are gone (``codec.object_keys``).
Callers use the paths of ``codec.paths``; the place inserts the uid.
"""

import errno
import random
from collections.abc import Iterable
from functools import lru_cache

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from seaweedmq.codec import paths
from seaweedmq.codec.object_keys import parse_log_object, parse_table_object
from seaweedmq.codec.state.documents import is_deleted_document, topic_from_document
from seaweedmq.core.files.live_tables import TABLE_GRACE_S
from seaweedmq.errors import AlreadyExists, Conflict, NotFound
from seaweedmq.model.config import US_PER_S
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import TIMEOUT_S, ObjectState
from seaweedmq.runtime.process.wall_clock import wall_us
from seaweedmq.runtime.retrying import backoff
from seaweedmq.storage.file_io import unique_suffix
from seaweedmq.storage.object_files import BlockInput, BlockReader, ObjectFileWriter
from seaweedmq.storage.objects.blocking import BlockingObjects
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri
from seaweedmq.storage.place import Change, Entry, Place, State, report_foreign

PROBES = ".probe"
"""Folder of objects that show the store's clock; each is deleted at once."""
DAMAGED = ".damaged"
"""Folder of damaged tables and Delta logs that were rebuilt, below which they have their former keys."""
UPDATES_MAX = 20
"""Limit of the attempts to update an object; each failed one means that another process did."""
BYTES_PER_S_MIN = 1024 * 1024
"""Rate at which a large object is still written in time."""
PAUSE_S_FIRST = 0.01
PAUSE_S_MAX = 0.5
_WITH_UID = frozenset({"log", "table", paths.STAGED})
"""Folders of a topic that lie below its uid."""
_DOCUMENTS = frozenset({paths.TOPIC_DOCUMENT, paths.LINEAGE_DOCUMENT})
_UID_DEPTH = 3
"""Number of folders above the uid in a key."""
_CLIENTS_MAX = 16


class ObjectPlace(Place):
    """A prefix of an object store. Equal places have equal URIs; a pickled one takes credentials where it arrives."""

    __slots__ = ("_objects", "_uids")

    def __init__(self, objects: BlockingObjects) -> None:
        self._objects = objects
        self._uids: dict[TopicName, int] = {}
        """Uid of each topic as this place saw it last: what is written late for a deleted topic stays below its uid."""

    @classmethod
    def parse(cls, uri: str) -> "ObjectPlace":
        """Return the place of a URI, without access to it; raises InvalidArgument, Unsupported as the client."""
        return cls(_client(ObjectsUri.parse(uri)))

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return ObjectPlace.parse, (str(self),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectPlace) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __str__(self) -> str:
        return self._objects.uri

    def __repr__(self) -> str:
        return f"ObjectPlace({str(self)!r})"

    def of(self, topic: Topic) -> "ObjectPlace":
        """Return the place with the uid of this topic, which may be deleted or recreated meanwhile."""
        place = ObjectPlace(self._objects)
        place._uids[topic.name] = topic.uid
        return place

    def where(self, path: str) -> str:
        """Return the URI, without the uid of the topic if that is not known."""
        return f"{self}/{self._key(path, search=False)}"

    def uri(self, path: str) -> str:
        """Return the URI, as it is written: keys of object stores are not escaped."""
        return f"{self}/{self._key(path)}"

    def exists(self) -> bool:
        """Return True once the store has answered; a missing bucket is StorageFailed."""
        self._objects.list_folder()
        return True

    def read(self, path: str) -> bytes:
        """Read a whole object; the documents of a deleted topic are missing."""
        content = bytes(self._get(path))
        if not _is_document(path):
            return content
        if is_deleted_document(content):
            raise _missing(self.where(path))
        if path.endswith(paths.TOPIC_DOCUMENT):
            topic = topic_from_document(content)
            self._uids[topic.name] = topic.uid
        return content

    def open_input(self, file: SegmentFile) -> BlockInput:
        """Open a log file or table, whose deletion the first read finds."""
        return BlockInput(self.open_reader(file.path), file.size_bytes)

    def open_reader(self, path: str, *, once: bool = False) -> BlockReader:
        """Open an object for reads of ranges, without access to it."""
        del once
        key = self._key(path)
        return BlockReader(f"{self}/{key}", lambda start, end: self._objects.get_range(key, start, end))

    def has(self, path: str) -> bool:
        """Whether there is an object of this name, or below it."""
        try:
            key = self._key(path)
            if _is_document(path):
                return bool(self.read(path))
        except FileNotFoundError:
            return False
        try:
            self._objects.head(key)
        except NotFound:
            found = self._objects.list_folder(key)
            return bool(found.objects or found.folders)
        return True

    def state(self, path: str) -> State | None:
        """Return the version of an object, or the names and versions in a folder."""
        try:
            key = self._key(path)
        except FileNotFoundError:
            return None
        try:
            return self._objects.head(key).e_tag
        except NotFound:
            found = self._objects.list_folder(key)
            return tuple((each.key, each.e_tag) for each in found.objects) or None

    def modified_us(self, path: str) -> int:
        """Return the time of the last change of an object."""
        return self.object_state(path).modified_us

    def touched_s(self, folder: str) -> float:
        """Return the time of the last change of an object below a folder."""
        dates_us = [each.modified_us for page in self._objects.list(self._key(folder)) for each in page]
        if not dates_us:
            raise _missing(self.where(folder))
        return max(dates_us) / US_PER_S

    def clock_s(self, folder: str = "") -> float:
        """Read the clock that dates objects, by a new one."""
        del folder
        key = f"{PROBES}/{unique_suffix()}"
        self._objects.put(key, [])
        try:
            return self._objects.head(key).modified_us / US_PER_S
        finally:
            self._objects.delete([key])

    def create(self, path: str, content: Frames) -> None:
        """Create an object; one with equal content may be its own, of an attempt whose answer was lost."""
        try:
            self._objects.create(self._key(path), [content], timeout_s=_timeout_s(len(content)))
        except AlreadyExists:
            if self._get(path) != content:
                raise FileExistsError(f"{self.where(path)} exists with other content") from None

    def replace(self, path: str, content: bytes) -> None:
        """Create or replace an object."""
        self._objects.put(self._key(path), [content])

    def update(self, path: str, change: Change) -> None:
        """Replace an object by what ``change`` makes of it, again if another process changed it meanwhile."""
        pause_s = backoff(random.Random(), PAUSE_S_FIRST, PAUSE_S_MAX)
        Retrying(
            stop=stop_after_attempt(UPDATES_MAX),
            wait=lambda state: pause_s(state.attempt_number),
            retry=retry_if_exception_type((AlreadyExists, Conflict, NotFound)),
            reraise=True,
        )(self._update, self._key(path), change)

    def _update(self, key: str, change: Change) -> None:
        try:
            before = self._objects.get(key)
        except NotFound:
            content = change(None)
            if content is not None:
                self._objects.create(key, [content])
            return
        content = change(bytes(before.content))
        if content is not None:
            self._objects.replace(key, [content], e_tag=before.state.e_tag)

    def touch(self, path: str, *, durable: bool = False) -> None:
        """Write an empty object."""
        del durable  # every object is
        self._objects.put(self._key(path), [])

    def open_writer(self, path: str) -> ObjectFileWriter:
        """Begin an object that is written in parts."""
        key = self._key(path)
        return ObjectFileWriter(self._objects, key, self._objects.open_writer(key))

    def delete(self, *paths: str) -> None:
        """Delete objects; ignore deleted ones."""
        if paths:
            self._objects.delete([self._key(path) for path in paths])

    def remove_tree(self, folder: str) -> None:
        """Delete all objects below a folder."""
        for page in self._objects.list(self._key(folder)):
            self._objects.delete([each.key for each in page])

    def remove_empty(self, folder: str) -> None:
        """Do nothing: a folder is what its objects are."""

    def make_below(self, existing: str, folder: str) -> None:
        """Check that the topic or namespace is there: a folder is what its objects are."""
        parts = existing.split("/")
        if len(parts) == _UID_DEPTH:
            self.read(f"{existing}/{paths.TOPIC_DOCUMENT}")
        elif not self.has(existing):
            raise _missing(self.where(existing))

    def remove_stale_temporaries(self, folder: str, now_s: float) -> None:
        """Do nothing: an object appears as a whole."""

    def refresh(self, folder: str) -> None:
        """Do nothing: a listing shows every object that was written before."""

    def sync(self, folder: str) -> None:
        """Do nothing: an object is durable once it is written."""

    def set_aside(self, path: str) -> None:
        """Copy a damaged object below ``.damaged``, then delete it."""
        self._move(self._key(path), f"{DAMAGED}/{self._key(path)}")

    def put_back(self, path: str) -> None:
        """Copy an object back, then delete the copy."""
        self._move(f"{DAMAGED}/{self._key(path)}", self._key(path))

    def _move(self, key: str, to: str) -> None:
        try:
            timeout_s = _timeout_s(self._objects.head(key).size_bytes)
            content = self._objects.get(key, timeout_s=timeout_s).content
        except NotFound:
            return
        self._objects.put(to, [content], timeout_s=timeout_s)
        self._objects.delete([key])

    def is_settled(self, table: str) -> bool:
        """Whether a table is older than ``TABLE_GRACE_S`` by the store's clock."""
        due_us = self.modified_us(table) + int(TABLE_GRACE_S * US_PER_S)
        # The clock of this machine saves requests, and decides nothing: what is due is due by the store's clock.
        return wall_us() >= due_us and self.clock_s() * US_PER_S >= due_us

    def lasting_path(self, table: str) -> str:
        """Return the table: its name never changes."""
        return table

    def parse_file(self, path: str) -> paths.SegmentFileName | None:
        """Return the parts of the key of a log object or table."""
        found = _file(ObjectState(self._key(path), 0, "", 0))
        if found is None:
            return None
        kind: paths.Kind = "log" if found.kind is FileKind.LOG else "table"
        return paths.SegmentFileName(
            found.topic, found.segment, kind, found.base_offset, found.end_offset, found.writer
        )

    def file_at(self, path: str) -> SegmentFile | None:
        """Return a log object or table with its size and date."""
        return _file(self.object_state(path))

    def object_state(self, path: str) -> ObjectState:
        """Return the state of an object."""
        try:
            return self._objects.head(self._key(path))
        except NotFound:
            raise _missing(self.where(path)) from None

    def listdir(self, folder: str) -> list[str]:
        """Return the names in a folder, those of folders in it as well."""
        return [entry.name for entry in self.entries(folder)]

    def entries(self, folder: str) -> list[Entry]:
        """Return the entries of a folder, ordered by name."""
        found = self._objects.list_folder(self._key(folder))
        if not (found.objects or found.folders):
            raise _missing(self.where(folder))
        files = [Entry(each.key.rpartition("/")[2], is_folder=False) for each in found.objects]
        return sorted([*files, *(Entry(key.rpartition("/")[2], is_folder=True) for key in found.folders)])

    def logs(self, topic: TopicName, segment: int) -> list[SegmentFile]:
        """List the log objects of a segment."""
        return self._files(paths.log_dir(topic, segment))

    def tables(self, topic: TopicName, segments: Iterable[int]) -> list[SegmentFile]:
        """List the tables of some segments, replaced ones as well."""
        wanted = frozenset(segments)
        return [file for file in self._files(paths.table_dir(topic)) if file.segment in wanted]

    def _files(self, folder: str) -> list[SegmentFile]:
        try:
            found = self._objects.list_folder(self._key(folder))
        except FileNotFoundError:
            return []
        files = []
        for each in found.objects:
            file = _file(each)
            if file is None:
                report_foreign(f"{self}/{each.key}")
            else:
                files.append(file)
        return files

    def _get(self, path: str) -> memoryview:
        try:
            return self._objects.get(self._key(path)).content
        except NotFound:
            raise _missing(self.where(path)) from None

    def _key(self, path: str, *, search: bool = True) -> str:
        """Return the key of a path; raises FileNotFoundError if its topic has no document, unless ``search`` is off."""
        parts = path.split("/")
        if len(parts) <= _UID_DEPTH or parts[0] != paths.TOPICS or parts[_UID_DEPTH] not in _WITH_UID:
            return path
        topic = TopicName(parts[1], parts[2])
        if topic not in self._uids:
            if not search:
                return path
            self.read(paths.document_path(topic, paths.TOPIC_DOCUMENT))
        return "/".join((*parts[:_UID_DEPTH], str(self._uids[topic]), *parts[_UID_DEPTH:]))


@lru_cache(_CLIENTS_MAX)
def _client(uri: ObjectsUri) -> BlockingObjects:
    """Return the client of a process for a storage: it holds the connections."""
    return BlockingObjects(ObstoreObjects(uri))


def _timeout_s(size_bytes: int) -> float:
    """Return the deadline of a request with so many bytes."""
    return TIMEOUT_S + size_bytes / BYTES_PER_S_MIN


def _is_document(path: str) -> bool:
    """Whether a path is that of ``topic.json`` or ``lineage.json``."""
    parts = path.split("/")
    return len(parts) == _UID_DEPTH + 1 and parts[0] == paths.TOPICS and parts[-1] in _DOCUMENTS


def _missing(where: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no such object", where)


def _file(state: ObjectState) -> SegmentFile | None:
    """Return the log object or table of a key; None for any other key."""
    log = parse_log_object(state.key)
    table = None if log is not None else parse_table_object(state.key)
    name = log or table
    if name is None:
        return None
    return SegmentFile(
        topic=name.topic.topic,
        segment=name.segment,
        kind=FileKind.TABLE if log is None else FileKind.LOG,
        base_offset=name.base_offset,
        end_offset=name.end_offset,
        writer="" if log is None else log.writer,
        size_bytes=state.size_bytes,
        path=state.key,
        modified_us=state.modified_us if table is None else table.dated_ms * 1_000,
    )
