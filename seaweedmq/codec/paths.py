"""Paths below the storage root, and the meaning of file names. All paths are relative, with ``/``.

::

    cluster.json
    topics/<namespace>/<topic>/topic.json
    topics/<namespace>/<topic>/lineage.json
    topics/<namespace>/<topic>/log/<segment, 8 digits>/<base offset, 20 digits>-<writer>.log
    topics/<namespace>/<topic>/table/<segment, 8 digits>-<base, 20 digits>-<end, 20 digits>.parquet
    topics/<namespace>/<topic>/table/.kept/<the same name>
    topics/<namespace>/<topic>/table/_delta_log/
    topics/<namespace>/<topic>/.removed/<segment, 8 digits>-<offset, 20 digits>-<uid of the topic>
    topics/<namespace>/<topic>/.staged/<sink>/done.json
    topics/<namespace>/<topic>/.staged/<sink>/<batch, 20 digits>/{manifest.json,progress.json,<name>.frames}
    topics/<namespace>/<topic>/producers-<segment, 8 digits>.json
    topics/<namespace>/.sinks/<topic>/<sink>-<uid of the topic>
    topics/<namespace>/.deleted-<uid of the topic>-<n>/
    topics/.deleted/<uid of the topic>
    blobs/<namespace>/<topic>/<uid of the topic>/<day, YYYY-MM-DD>/<id, 32 hex digits>[/<part, 5 digits>]
    kafka/{producer-ids,node-ids}/<number, 15 digits>
    groups/<generation, 8 digits>-<revision, 20 digits>-<number, 6 digits>.journal

Numbers are padded so that names sort as offsets do. Legal names (``model.topic``) need no escaping. All tables of a
topic lie in one folder, since Spark does not descend into folders other than ``key=value`` partitions, and Arrow skips
those that begin with ``_``. Other entries of that folder begin with a dot, which both skip.

A table has two names, which are links to one file: the live name, and the retained link in ``.kept``. Readers that have
begun with a table use the retained link after the table is superseded.

An empty file in ``topics/.deleted`` records that a topic was deleted, so that its late files are recognized. A file in
``kafka`` is a claim (``model.claims``).

An empty file in ``.removed`` records that retention removed all records of a segment below an offset. It tells a reader
that does not find them that they are not lost.

A blob is a payload that records refer to: one file, or a folder of parts, each but the last of the same size. While it
is uploaded, its parts are in a folder whose name begins with ``.upload-``, which is renamed once all are there.

Staged files are not part of the topic yet: readers and upkeep skip them, and they are deleted with the topic. The
record of which topic of a name a sink writes to lies beside the topics, so that it outlives them.
"""

import re
from typing import Final, Literal, NamedTuple, TypeAlias

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import TopicName, check_name

CLUSTER_DOCUMENT: Final = "cluster.json"
"""Marker at the root: the cluster that the storage belongs to."""
TOPICS: Final = "topics"
BLOBS: Final = "blobs"
"""Folder of the payloads of all topics, beside the topics, so that readers of tables do not list them."""
UPLOAD_PREFIX: Final = ".upload-"
"""Prefix of the folder of a blob's parts until the upload is complete."""
TOPIC_DOCUMENT: Final = "topic.json"
LINEAGE_DOCUMENT: Final = "lineage.json"
FENCE_PREFIX: Final = "fence-"
LOCK_NAME: Final = ".converting"
"""Name of the lock file in the folder of a segment's logs during their conversion."""
KEPT: Final = ".kept"
DELTA_LOG: Final = "_delta_log"
"""Folder in that of the tables, which lists the live tables for readers of Delta tables."""
STAGED: Final = ".staged"
SINKS: Final = ".sinks"
DELETED_PREFIX: Final = ".deleted-"
DELETED_TOPICS: Final = f"{TOPICS}/.deleted"
"""Folder of the empty files that are named after the uids of deleted topics."""
GROUPS: Final = "groups"
"""Folder of the journals of native groups."""
REMOVED: Final = ".removed"
Kind: TypeAlias = Literal["log", "table"]

_SEGMENT = re.compile(r"[0-9]{8,10}", re.ASCII)
_REMOVED = re.compile(r"(?P<segment>[0-9]{8,10})-(?P<offset>[0-9]{20})-(?P<uid>[0-9]+)", re.ASCII)

_FILE = re.compile(
    r"topics/(?P<namespace>[^/]+)/(?P<topic>[^/]+)/"
    r"(?:log/(?P<log_segment>[0-9]{8,10})/(?P<log_base>[0-9]{20})-(?P<writer>[^/]+)\.log"
    r"|table/(?P<table_segment>[0-9]{8,10})-(?P<table_base>[0-9]{20})-(?P<table_end>[0-9]{20})\.parquet)",
    re.ASCII,
)


_BLOB = re.compile(
    r"blobs/(?P<namespace>[^/]+)/(?P<topic>[^/]+)/(?P<uid>[0-9]+)/(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})/(?P<id>[0-9a-f]{32})",
    re.ASCII,
)
_BLOB_ID = re.compile(r"[0-9a-f]{32}", re.ASCII)
_JOURNAL = re.compile(r"([0-9]{8,})-([0-9]{20})-([0-9]{6,})\.journal", re.ASCII)


class SegmentFileName(NamedTuple):
    """The parts of a log or Parquet file's path. ``kind`` equals the ``model.files.FileKind`` of the same name."""

    topic: TopicName
    segment: int
    kind: Kind
    base_offset: int
    end_offset: int | None
    """Exclusive; None for a log file."""
    writer: str
    """Broker id; "" for a table."""


class BlobName(NamedTuple):
    """The parts of the path of a payload that records refer to."""

    topic: TopicName
    uid: int
    """Uid of the topic: the payloads of a deleted topic are not those of another one with its name."""
    day: str
    """UTC day on which the upload began, ``YYYY-MM-DD``."""
    id: str
    """Id of the upload, 32 hexadecimal digits."""

    @property
    def uri(self) -> str:
        """The path below the storage root, as records contain it."""
        return f"{blob_days(self.topic, self.uid)}/{self.day}/{self.id}"

    @property
    def staged(self) -> str:
        """The folder of the parts until the upload is complete."""
        return f"{blob_days(self.topic, self.uid)}/{self.day}/{UPLOAD_PREFIX}{self.id}"


def blob_days(topic: TopicName, uid: int) -> str:
    """Return the folder of the days of a topic's blobs."""
    return f"{BLOBS}/{topic.namespace}/{topic.name}/{uid}"


def blob_name(topic: TopicName, uid: int, day: str, blob_id: str) -> BlobName:
    """Return the name of a blob, or raise InvalidArgument if the id is not one."""
    if not _BLOB_ID.fullmatch(blob_id):
        raise InvalidArgument(f"{blob_id[:64]!r} is not the id of an upload: use 32 hexadecimal digits")
    return BlobName(topic, uid, day, blob_id)


def parse_blob(uri: str) -> BlobName | None:
    """Return the name of a ``BlobName.uri``; None for any other path, and for one that leaves its folder."""
    match = _BLOB.fullmatch(uri)
    if match is None:
        return None
    try:
        name = BlobName(TopicName(match["namespace"], match["topic"]), int(match["uid"]), match["day"], match["id"])
    except InvalidArgument:
        return None
    return name if name.uri == uri else None


def part_name(number: int) -> str:
    """Return the file name of a part, from 0, of a blob."""
    return f"{number:05d}"


def parse_part_name(name: str) -> int | None:
    """Return the number of a part's file name; None for any other name."""
    return int(name) if len(name) == 5 and name.isascii() and name.isdecimal() else None


def topic_dir(topic: TopicName) -> str:
    """Return the folder of everything a topic stores except its blobs."""
    return f"{TOPICS}/{topic.namespace}/{topic.name}"


def logs_dir(topic: TopicName) -> str:
    """Return the folder of the folders of all segments' log files."""
    return f"{topic_dir(topic)}/log"


def log_dir(topic: TopicName, segment: int) -> str:
    """Return the folder of one segment's log files."""
    return f"{logs_dir(topic)}/{segment:08d}"


def fence_path(topic: TopicName, uid: int, segment: int) -> str:
    """Return the path of a fence, which exists once a leader has recovered the segment from its files.

    It lies beside the log files of the segment; ``uid`` is that of the topic.
    """
    return f"{log_dir(topic, segment)}/{FENCE_PREFIX}{uid}"


def table_dir(topic: TopicName) -> str:
    """Return the folder of the tables of all of a topic's segments."""
    return f"{topic_dir(topic)}/table"


def table_prefix(segment: int) -> str:
    """Return the prefix of the names of one segment's tables in that folder."""
    return f"{segment:08d}-"


def document_path(topic: TopicName, name: str) -> str:
    """Return the path of ``topic.json`` or ``lineage.json``, for readers without etcd."""
    return f"{topic_dir(topic)}/{check_name('document', name)}"


def deleted_prefix(topic_uid: int) -> str:
    """Return the prefix of a deleted topic's folder name, in its namespace, until its files are removed.

    The uid alone distinguishes topics; with a name of the permitted length, the folder's would exceed 255 bytes.
    """
    return f"{DELETED_PREFIX}{topic_uid}-"


def producers_document(segment: int) -> str:
    """Return the name of the document with a sealed segment's producers, for when its log files are deleted."""
    return f"producers-{segment:08d}.json"


def parse_producers_document(name: str) -> int | None:
    """Return the segment of a name that :func:`producers_document` made; None for any other name."""
    digits = name.removeprefix("producers-").removesuffix(".json")
    if not (digits.isascii() and digits.isdecimal()) or producers_document(int(digits)) != name:
        return None
    return int(digits)


def parse_segment_path(topic: TopicName, path: str) -> int | None:
    """Return the segment to which a path below the topic's folder belongs, including the folder of its log files.

    None: no segment, or a name that this project does not give.
    """
    parts = path.removeprefix(f"{topic_dir(topic)}/").split("/")
    match parts:
        case ["log", folder, *_] if _SEGMENT.fullmatch(folder) and f"{int(folder):08d}" == folder:
            return int(folder)
        case ["table", name] | ["table", ".kept", name]:
            found = parse_segment_file(f"{table_dir(topic)}/{name}")
            return None if found is None else found.segment
        case [".removed", name]:
            mark = parse_removed_mark(name)
            return None if mark is None else mark.segment
        case [name]:
            return parse_producers_document(name)
    return None


def claims_dir(kind: str) -> str:
    """Return the folder of the claims of a kind, a value of ``model.claims.ClaimKind``."""
    return f"kafka/{kind}"


def claim_path(kind: str, number: int) -> str:
    """Return the path of the claim of a number."""
    return f"{claims_dir(kind)}/{number:015d}"


def parse_claim_name(name: str) -> int | None:
    """Return the number that a file in :func:`claims_dir` claims; None for any other name."""
    return int(name) if len(name) == 15 and name.isascii() and name.isdecimal() else None


def deleted_topic_path(uid: int) -> str:
    """Return the path of the record that the topic with this uid was deleted."""
    return f"{DELETED_TOPICS}/{uid}"


def journal_name(generation: int, revision: int, number: int) -> str:
    """Return the name of a journal of groups; names sort as their writers followed each other.

    In the next ``generation`` of the cluster, revisions begin again. ``revision`` is the one at which the lock of the
    leader that writes the journal was created, and ``number`` counts the journals of this leader.
    """
    return f"{generation:08d}-{revision:020d}-{number:06d}.journal"


def parse_journal_name(name: str) -> tuple[int, int, int] | None:
    """Return generation, revision and number of a name that :func:`journal_name` made; None for any other name."""
    match = _JOURNAL.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]), int(match[3]))


def journal_path(journal: str) -> str:
    """Return the path of a journal of groups, or raise InvalidArgument if the name is not one of a journal."""
    if parse_journal_name(journal) is None:
        raise InvalidArgument(f"{journal!r} does not name a journal of groups: use GENERATION-REVISION-NUMBER.journal")
    return f"{GROUPS}/{journal}"


def log_path(topic: TopicName, segment: int, base_offset: int, writer: str) -> str:
    """Return the path of a log file: every writer (broker id) has its own, so a late one damages no other.

    Raises InvalidArgument if the writer's id cannot be part of a file name.
    """
    return f"{log_dir(topic, segment)}/{base_offset:020d}-{check_name('writer', writer)}.log"


def table_path(topic: TopicName, segment: int, base: int, end: int) -> str:
    """Return the path of a Parquet file of offsets ``[base, end)``, or raise InvalidArgument if there are none."""
    if not 0 <= base < end:
        raise InvalidArgument(f"table of offsets [{base}, {end}): a table file holds at least one record")
    return f"{table_dir(topic)}/{table_prefix(segment)}{base:020d}-{end:020d}.parquet"


def delta_log_dir(topic: TopicName) -> str:
    """Return the folder of the topic's Delta log."""
    return f"{table_dir(topic)}/{DELTA_LOG}"


def kept_path(table: str) -> str:
    """Return the retained link of a table, which outlives its live name for a while."""
    folder, slash, name = table.rpartition("/")
    return f"{folder}{slash}{KEPT}/{name}"


class RemovedMark(NamedTuple):
    """The name of a file that records the removal of records by retention."""

    segment: int
    offset: int
    """Offset below which all records of the segment are removed."""
    uid: int
    """Uid of the topic."""

    @property
    def file_name(self) -> str:
        """The name of the file in :func:`removed_dir`."""
        return f"{self.segment:08d}-{self.offset:020d}-{self.uid}"


def removed_dir(topic: TopicName) -> str:
    """Return the folder of the files that record how far retention removed the records of each segment."""
    return f"{topic_dir(topic)}/{REMOVED}"


def parse_removed_mark(file_name: str) -> RemovedMark | None:
    """Return the mark of a ``RemovedMark.file_name``; None for any other name."""
    match = _REMOVED.fullmatch(file_name)
    if match is None:
        return None
    mark = RemovedMark(int(match["segment"]), int(match["offset"]), int(match["uid"]))
    return mark if mark.file_name == file_name else None


def staged_dir(topic: TopicName) -> str:
    """Return the folder of the batches that sinks have staged for the topic."""
    return f"{topic_dir(topic)}/{STAGED}"


def sink_dir(topic: TopicName, sink: str) -> str:
    """Return the folder of one sink, or raise InvalidArgument if its id cannot be part of a file name."""
    return f"{staged_dir(topic)}/{check_name('sink', sink)}"


def batch_dir(topic: TopicName, sink: str, batch: int) -> str:
    """Return the folder of one batch, from 0, of a sink; raises as :func:`sink_dir`."""
    if batch < 0:
        raise InvalidArgument(f"batch {batch} of sink {sink}: batches are numbered from 0")
    return f"{sink_dir(topic, sink)}/{batch:020d}"


def sink_marks_dir(topic: TopicName) -> str:
    """Return the folder of the marks of all sinks that write to a topic of this name; it outlives the topic."""
    return f"{TOPICS}/{topic.namespace}/{SINKS}/{topic.name}"


def sink_mark(sink: str, topic_uid: int) -> str:
    """Return the name, in that folder, of the mark that a sink has written to this one of the topics.

    Raises InvalidArgument as :func:`sink_dir`.
    """
    return f"{check_name('sink', sink)}-{topic_uid}"


def sink_of_mark(name: str) -> str:
    """Return the sink of a mark's file name."""
    return name.rpartition("-")[0]


def parse_segment_file(path: str) -> SegmentFileName | None:
    """Return the parts of a :func:`log_path` or :func:`table_path`; None for any other path."""
    match = _FILE.fullmatch(path)
    if match is None:
        return None
    try:
        topic = TopicName(match["namespace"], match["topic"])
        if match["writer"] is not None:
            name = SegmentFileName(
                topic, int(match["log_segment"]), "log", int(match["log_base"]), None, match["writer"]
            )
            made = log_path(topic, name.segment, name.base_offset, name.writer)
        else:
            base, end = int(match["table_base"]), int(match["table_end"])
            name = SegmentFileName(topic, int(match["table_segment"]), "table", base, end, "")
            made = table_path(topic, name.segment, base, end)
    except InvalidArgument:
        return None  # a foreign file: its names are not ones this project gives
    return name if made == path else None
