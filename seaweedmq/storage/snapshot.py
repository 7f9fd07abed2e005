"""Snapshot of a topic from its files, without brokers or etcd. Blocking; for readers outside the cluster, like Spark.

The reading order keeps it consistent while brokers write: the lineage first, then logs, then tables. A log that the
listing does not show had been converted to a table before, and tables are listed later.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, TOPICS, document_path, topic_dir
from seaweedmq.codec.state.documents import lineage_from_document, topic_from_document
from seaweedmq.core.files.snapshot import SnapshotPiece, plan_snapshot
from seaweedmq.errors import Corrupt, InvalidArgument, NotFound
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.storage.faults import failing, storage_failed
from seaweedmq.storage.place import Place
from seaweedmq.storage.store.removed import scan_removed

_NAMES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """A topic's metadata and file names at one moment."""

    topic: Topic
    segments: tuple[Segment, ...]
    """Open and sealed segments, ordered by id."""
    files: tuple[SegmentFile, ...]
    """Files of all segments. Their sizes bound the part of a growing log file that belongs to the snapshot."""
    removed: Mapping[int, int] = field(default_factory=dict)
    """Segment -> offset below which retention recorded that it removed the records."""

    def segment(self, segment_id: int) -> Segment:
        """Return a segment by id. Raises InvalidArgument if the topic has no such segment."""
        for segment in self.segments:
            if segment.id == segment_id:
                return segment
        known = ", ".join(str(s.id) for s in self.segments[:_NAMES_SHOWN_MAX])
        if segment_id in self.topic.pruned:
            raise InvalidArgument(
                f"segment {segment_id} of topic {self.topic.name} is pruned, retention removed its records: leave it "
                f"out; the topic has {known}"
            )
        raise InvalidArgument(f"topic {self.topic.name} has no segment {segment_id}: it has {known}")

    def plan(
        self, segment_id: int, start: int = 0, end: int | None = None, *, missing: list[range] | None = None
    ) -> tuple[SnapshotPiece, ...]:
        """Return the pieces that hold offsets ``[start, end)`` of a segment, planned by ``core.files.snapshot``."""
        segment, removed_below = self.segment(segment_id), self.removed.get(segment_id, 0)
        return plan_snapshot(self.topic, segment, self.files, start, end, removed_below=removed_below, missing=missing)


def read_snapshot(place: Place, name: TopicName, segments: Iterable[int] | None = None) -> TopicSnapshot:
    """Read ``topic.json`` and ``lineage.json`` below the storage root and list the topic's files.

    ``segments``: those whose files are listed; None: all. Raises InvalidArgument if the place is not a directory;
    NotFound if there is no such topic, and names existing ones.
    """
    if not place.exists():
        raise InvalidArgument(f"storage {place} is not a directory: give the root that the brokers were started with")
    topic = topic_from_document(read_document(place, name, TOPIC_DOCUMENT))
    lineage_of, known = lineage_from_document(read_document(place, name, LINEAGE_DOCUMENT))
    for found in (topic.name, lineage_of):
        if found != name:
            raise Corrupt(f"{place.where(topic_dir(name))} holds documents of topic {found}: it was renamed or copied")
    listed = [s.id for s in known] if segments is None else segments
    files = list_files(place, name, listed)
    # Listed last: retention records what it removes before it deletes files.
    return TopicSnapshot(topic=topic, segments=known, files=files, removed=list_removed(place, topic))


def read_topic(place: Place, name: TopicName) -> Topic:
    """Read ``topic.json``, one small file; the errors are those of :func:`read_snapshot`."""
    return topic_from_document(read_document(place, name, TOPIC_DOCUMENT))


def list_files(place: Place, name: TopicName, segments: Iterable[int]) -> tuple[SegmentFile, ...]:
    """List the log and table files of some segments, unordered."""
    wanted = sorted(set(segments))
    with failing("list files of", place.where(topic_dir(name))):
        logs = [f for segment in wanted for f in place.logs(name, segment)]
        return (*logs, *place.tables(name, wanted))


def list_removed(place: Place, topic: Topic) -> Mapping[int, int]:
    """Return segment -> offset below which retention recorded that it removed the records."""
    with failing("list files of", place.where(topic_dir(topic.name))):
        return scan_removed(place, topic.name, topic.uid)


def list_topics(place: Place) -> list[TopicName]:
    """List the topics that have a ``topic.json`` below the storage root, ordered by name."""
    found = []
    with failing("list topics in", place):
        for namespace in place.names(TOPICS):
            for name in place.names(f"{TOPICS}/{namespace}"):
                try:
                    topic = TopicName(namespace, name)
                except InvalidArgument:
                    continue  # a foreign folder
                if place.has(document_path(topic, TOPIC_DOCUMENT)):
                    found.append(topic)
    return sorted(found)


def read_document(place: Place, name: TopicName, document: str) -> bytes:
    """Read a document of a topic; if there is no such topic, raises NotFound, which names existing ones."""
    path = place.where(document_path(name, document))
    try:
        return place.read(document_path(name, document))
    except FileNotFoundError:
        topics = list_topics(place)
        shown = ", ".join(str(t) for t in topics[:_NAMES_SHOWN_MAX])
        more = f" and {len(topics) - _NAMES_SHOWN_MAX} more" if len(topics) > _NAMES_SHOWN_MAX else ""
        if name in topics:
            raise NotFound(f"{path} is missing, the topic is being created or deleted: retry") from None
        raise NotFound(f"no topic {name} in {place}: {f'it has {shown}{more}' if shown else 'it has none'}") from None
    except OSError as e:
        raise storage_failed("read", path, e) from e
