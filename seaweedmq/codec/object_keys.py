"""Keys of a cluster's objects below its prefix, and the meaning of their names. ``codec.paths`` has the rest.

::

    bundles/<broker id>/<number, 16 digits>
    topics/<namespace>/<topic>/<uid>/log/<segment, 8 digits>/<base, 20 digits>-<end, 20 digits>-<writer>.log
    topics/<namespace>/<topic>/<uid>/table/<segment, 8>-<base, 20>-<end, 20>-<dated, 15 digits>.parquet
    topics/<namespace>/<topic>/<uid>/table/_delta_log/
    topics/<namespace>/<topic>/<uid>/.staged/<sink>/done.json
    topics/<namespace>/<topic>/<uid>/.staged/<sink>/<batch, 20 digits>/{manifest.json,progress.json,<name>.frames}
    blobs/<namespace>/<topic>/<uid>/<day, YYYY-MM-DD>/<id>[/<part, 5 digits>]

An object cannot be renamed, linked, locked or dated. So a log object is created once with all its frames and has its
end in its name, and a table has the youngest of its sources in its name: retention goes by that, and equal conversions
have equal names. The uid of the topic is a folder: what arrives late for a deleted topic harms no later one of the same
name. Documents, sink marks, claims and journals have the paths of ``codec.paths``.
"""

import re
from typing import Final, NamedTuple

from seaweedmq.codec import paths
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.bundle import NUMBER_MAX
from seaweedmq.model.topic import TopicName, check_name

BUNDLES: Final = "bundles"
DATED_MS_MAX: Final = 10**15 - 1
PARTS_MAX: Final = 10**5
"""Limit of the parts of a blob: their numbers have 5 digits."""

_NUMBER = re.compile(r"[0-9]{16}", re.ASCII)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TOPIC = r"topics/(?P<namespace>[^/]+)/(?P<topic>[^/]+)/(?P<uid>[0-9]{1,20})/"
_LOG = re.compile(
    _TOPIC + r"log/(?P<segment>[0-9]{8,10})/(?P<base>[0-9]{20})-(?P<end>[0-9]{20})-(?P<writer>[^/]+)\.log", re.ASCII
)
_TABLE = re.compile(
    _TOPIC + r"table/(?P<segment>[0-9]{8,10})-(?P<base>[0-9]{20})-(?P<end>[0-9]{20})-(?P<dated>[0-9]{15})\.parquet",
    re.ASCII,
)
_BLOB = re.compile(
    r"blobs/(?P<namespace>[^/]+)/(?P<topic>[^/]+)/(?P<uid>[0-9]{1,20})/(?P<day>[^/]+)/(?P<id>[^/]+)"
    r"(?:/(?P<part>[0-9]{5}))?",
    re.ASCII,
)


class TopicKey(NamedTuple):
    """A topic and its uid, which together name the folder of its objects."""

    topic: TopicName
    uid: int

    @property
    def folder(self) -> str:
        """The prefix of the topic's objects, without its documents."""
        return f"{paths.topic_dir(self.topic)}/{self.uid}"


class LogObject(NamedTuple):
    """The parts of a log object's key: frames of offsets ``[base_offset, end_offset)``."""

    topic: TopicKey
    segment: int
    base_offset: int
    end_offset: int
    writer: str
    """Id of the broker that created it."""

    @property
    def key(self) -> str:
        """The key; raises InvalidArgument without offsets, or if the writer cannot be part of a name."""
        _check_offsets("log object", self.base_offset, self.end_offset)
        name = f"{self.base_offset:020d}-{self.end_offset:020d}-{check_name('writer', self.writer)}.log"
        return f"{log_folder(self.topic, self.segment)}/{name}"


class TableObject(NamedTuple):
    """The parts of a table's key: records of offsets ``[base_offset, end_offset)``."""

    topic: TopicKey
    segment: int
    base_offset: int
    end_offset: int
    dated_ms: int
    """Creation time of the youngest source, milliseconds since 1970 UTC, at most ``DATED_MS_MAX``."""

    @property
    def key(self) -> str:
        """The key; raises InvalidArgument without offsets, or for a date that has more than 15 digits."""
        _check_offsets("table", self.base_offset, self.end_offset)
        if not 0 <= self.dated_ms <= DATED_MS_MAX:
            raise InvalidArgument(f"table dated {self.dated_ms} ms: use 0 to {DATED_MS_MAX} ms since 1970")
        name = f"{self.base_offset:020d}-{self.end_offset:020d}-{self.dated_ms:015d}.parquet"
        return f"{table_folder(self.topic)}/{paths.table_prefix(self.segment)}{name}"


class BlobObject(NamedTuple):
    """The parts of the key of an uploaded payload, or of one part of it."""

    topic: TopicKey
    day: str
    """Day of the upload, ``YYYY-MM-DD``."""
    id: str
    part: int | None = None
    """Number from 0 of a part; None for a payload in one object."""

    @property
    def key(self) -> str:
        """The key; raises InvalidArgument if a part of it cannot be part of a name."""
        if not _DAY.fullmatch(self.day):
            raise InvalidArgument(f"blob of day {self.day!r}: use YYYY-MM-DD")
        if self.part is not None and not 0 <= self.part < PARTS_MAX:
            raise InvalidArgument(f"part {self.part} of blob {self.id}: use 0 to {PARTS_MAX - 1}")
        part = "" if self.part is None else f"/{self.part:05d}"
        return f"{blobs_folder(self.topic)}/{self.day}/{check_name('blob', self.id)}{part}"


def bundles_folder(broker_id: str) -> str:
    """Return the folder of a broker's bundles; raises InvalidArgument if the id cannot be part of a name."""
    return f"{BUNDLES}/{check_name('broker', broker_id)}"


def bundle_key(broker_id: str, number: int) -> str:
    """Return the key of an entry of a broker's sequence; raises InvalidArgument for a number that has no 16 digits."""
    if not 0 <= number <= NUMBER_MAX:
        raise InvalidArgument(f"bundle {number} of broker {broker_id}: use numbers from 0 to {NUMBER_MAX}")
    return f"{bundles_folder(broker_id)}/{number:016d}"


def parse_bundle_key(key: str) -> tuple[str, int] | None:
    """Return broker id and number of a :func:`bundle_key`; None for any other key."""
    match key.split("/"):
        case [folder, broker_id, number] if folder == BUNDLES and _NUMBER.fullmatch(number):
            try:
                return (broker_id, int(number)) if bundle_key(broker_id, int(number)) == key else None
            except InvalidArgument:
                return None  # a foreign object: its names are not ones this project gives
    return None


def log_folder(topic: TopicKey, segment: int) -> str:
    """Return the folder of a segment's log objects."""
    return f"{topic.folder}/log/{segment:08d}"


def table_folder(topic: TopicKey) -> str:
    """Return the folder of the topic's tables, which is a Delta table."""
    return f"{topic.folder}/table"


def delta_log_folder(topic: TopicKey) -> str:
    """Return the folder of the topic's Delta log."""
    return f"{table_folder(topic)}/{paths.DELTA_LOG}"


def staged_folder(topic: TopicKey) -> str:
    """Return the folder of the batches that sinks have staged for the topic."""
    return f"{topic.folder}/{paths.STAGED}"


def batch_folder(topic: TopicKey, sink: str, batch: int) -> str:
    """Return the folder of one batch, from 0, of a sink; raises InvalidArgument for an illegal sink or number."""
    if batch < 0:
        raise InvalidArgument(f"batch {batch} of sink {sink}: batches are numbered from 0")
    return f"{staged_folder(topic)}/{check_name('sink', sink)}/{batch:020d}"


def blobs_folder(topic: TopicKey) -> str:
    """Return the folder of the payloads that were uploaded for the topic."""
    return f"{paths.BLOBS}/{topic.topic.namespace}/{topic.topic.name}/{topic.uid}"


def parse_log_object(key: str) -> LogObject | None:
    """Return the parts of a ``LogObject.key``; None for any other key."""
    match = _LOG.fullmatch(key)
    if match is None:
        return None
    try:
        topic = TopicKey(TopicName(match["namespace"], match["topic"]), int(match["uid"]))
        found = LogObject(topic, int(match["segment"]), int(match["base"]), int(match["end"]), match["writer"])
        return found if found.key == key else None
    except InvalidArgument:
        return None  # a foreign object


def parse_table_object(key: str) -> TableObject | None:
    """Return the parts of a ``TableObject.key``; None for any other key."""
    match = _TABLE.fullmatch(key)
    if match is None:
        return None
    try:
        topic = TopicKey(TopicName(match["namespace"], match["topic"]), int(match["uid"]))
        found = TableObject(topic, int(match["segment"]), int(match["base"]), int(match["end"]), int(match["dated"]))
        return found if found.key == key else None
    except InvalidArgument:
        return None  # a foreign object


def parse_blob_object(key: str) -> BlobObject | None:
    """Return the parts of a ``BlobObject.key``; None for any other key."""
    match = _BLOB.fullmatch(key)
    if match is None:
        return None
    try:
        topic = TopicKey(TopicName(match["namespace"], match["topic"]), int(match["uid"]))
        part = None if match["part"] is None else int(match["part"])
        found = BlobObject(topic, match["day"], match["id"], part)
        return found if found.key == key else None
    except InvalidArgument:
        return None  # a foreign object


def _check_offsets(what: str, base: int, end: int) -> None:
    if not 0 <= base < end:
        raise InvalidArgument(f"{what} of offsets [{base}, {end}): it holds at least one record")
