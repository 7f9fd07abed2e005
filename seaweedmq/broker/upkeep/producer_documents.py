"""Documents with the producers of sealed segments, for the time after their log files are deleted.

The record of a sealed segment in etcd names its producers, and so do its log files. A recovery of etcd has only the
files, so the record is written to ``producers-<segment>.json`` before the first of the log files is deleted.
"""

from collections.abc import Iterable

from seaweedmq.codec.paths import producers_document
from seaweedmq.codec.state.producers import producers_to_json
from seaweedmq.errors import StorageFailed
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore
from seaweedmq.runtime.log_once import OnceLogger

WRITTEN_AT_ONCE = 100
"""Most documents in one call of the storage. Each takes up to about 160 KB."""


class ProducerDocuments:
    """The producer documents of the topics that one broker maintains."""

    def __init__(self, store: SegmentStore, failures_log: OnceLogger) -> None:
        self._store = store
        self._failures_log = failures_log
        self._due: dict[TopicName, tuple[int, dict[int, bytes]]] = {}
        """Topic with documents that the storage rejected -> its uid, and their content by segment id."""

    async def write(self, topic: Topic, segments: Iterable[Segment]) -> None:
        """Write the documents of sealed segments whose log files are about to be deleted.

        Full storage rejects documents, but retention must continue. Rejected documents are written by a later call.
        """
        uid, refused = self._due.pop(topic.name, (topic.uid, {}))
        due = refused if uid == topic.uid else {}
        due |= {s.id: producers_to_json(topic.uid, s) for s in segments if _has_producers(s)}
        what = f"producers of sealed segments of {topic.name}"
        try:
            while due:
                some = dict(list(due.items())[:WRITTEN_AT_ONCE])
                documents = {producers_document(n): text for n, text in some.items()}
                await self._store.put_documents(topic.name, documents, uid=topic.uid, revision=0)
                due = {number: text for number, text in due.items() if number not in some}
        except StorageFailed as error:
            self._due[topic.name] = topic.uid, due
            self._failures_log.add(what, error)
        else:
            self._failures_log.over(what)

    def forget(self, topics: Iterable[TopicName]) -> None:
        """Drop the documents of deleted topics."""
        for name in topics:
            self._due.pop(name, None)

    @property
    def topics(self) -> frozenset[TopicName]:
        """The topics with documents that the storage rejected."""
        return frozenset(self._due)


def _has_producers(segment: Segment) -> bool:
    """Whether the record has more than the lineage document: an empty segment has no producers."""
    has_records = segment.start_offset != segment.end_offset
    return not segment.is_open and has_records and bool(segment.sequences or segment.sequences_complete)
