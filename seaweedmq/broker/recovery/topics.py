"""Topics, read from the storage alone: from documents, preambles of log files and names of files."""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from seaweedmq.codec.frame import Truncated
from seaweedmq.codec.logfile import LogPreamble, decode_preamble
from seaweedmq.codec.paths import LINEAGE_DOCUMENT, TOPIC_DOCUMENT, producers_document
from seaweedmq.codec.state.documents import lineage_from_document, topic_from_document
from seaweedmq.codec.state.producers import with_producers
from seaweedmq.core.lineage.reconstruction import (
    Reconstructed,
    first_new_id,
    latest_topic,
    merged,
    reconstruct,
    unsealed,
)
from seaweedmq.errors import Corrupt, NotFound, Unsupported
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import DirectoryStore, SegmentStore
from seaweedmq.storage.read.recovery import recover_segment

log = logging.getLogger(__name__)

PREAMBLE_READ_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """A topic in etcd, which may be older than the storage."""

    topic: Topic
    segments: tuple[Segment, ...] = ()


@dataclass(slots=True)
class FoundTopic:
    """A topic in the storage."""

    name: TopicName
    reconstructed: Reconstructed | None = None
    """The reconstructed topic; None if there is nothing to recover, or a problem prevents it."""
    problems: list[str] = field(default_factory=list)
    """The reasons why the topic cannot be recovered."""
    notes: list[str] = field(default_factory=list)
    """The findings that lose nothing."""


async def find_topic(
    store: DirectoryStore, name: TopicName, known: KnownTopic | None, *, generation: int, apply: bool, now_us: int
) -> FoundTopic:
    """Read one topic from the storage and reconstruct it. Raises StorageFailed if the storage cannot be read.

    ``known`` is the topic of this name in etcd, or None. With ``apply``, segments are fenced before their end is read
    from their files.
    """
    found = FoundTopic(name)
    documents = await store.list_documents(name)
    files = await store.list_topic_files(name)
    document = await _topic_document(store, name, found)
    lineage = await _lineage_document(store, name, found)
    preambles = await _preambles_of_unknown(store, document, lineage, files, found)
    topic = document or _origin(preambles, known)
    if topic is None:
        if files:
            found.problems.append(
                f"{name}: {TOPIC_DOCUMENT} is missing or unreadable, and no log file has its content: restore it from "
                "a copy, or move the folder of the topic away"
            )
        else:
            found.notes.append(f"{name}: topic has no readable document and no files: omitted")
        return found
    mine = known if known is not None and known.topic.uid == topic.uid else None
    topic = latest_topic(topic, None if mine is None else mine.topic)
    stored = [*lineage, *(segment for p in preambles if p.topic_uid == topic.uid for segment in p.lineage)]
    try:
        # Without the segments in etcd: those of an earlier attempt must not raise the first id of this one.
        numbers = {f.segment for f in files}
        floor = first_new_id(document or topic, merged(topic, stored), numbers, generation=generation)
        records = merged(topic, [*stored, *(() if mine is None else mine.segments)])
        found.problems += _unexplained(topic, records, files, preambles)
        if found.problems:
            return found
        records = {
            number: await _with_producers(store, topic, segment, documents) for number, segment in records.items()
        }
        ends = await _ends(store, topic, records, apply=apply)
        found.reconstructed = reconstruct(topic, records, ends=ends, first_new=floor, now_us=now_us)
    except (Corrupt, Unsupported) as error:
        found.problems.append(str(error))
    return found


async def _topic_document(store: SegmentStore, name: TopicName, found: FoundTopic) -> Topic | None:
    try:
        topic = topic_from_document(await store.read_document(name, TOPIC_DOCUMENT))
    except NotFound:
        return None
    except Corrupt as error:
        found.notes.append(f"{name}: {TOPIC_DOCUMENT} is unreadable, log files are used instead: {error}")
        return None
    if topic.name != name:
        found.problems.append(
            f"{name}: {TOPIC_DOCUMENT} belongs to {topic.name}: the folder was renamed or copied, move it away"
        )
    return topic


async def _lineage_document(store: SegmentStore, name: TopicName, found: FoundTopic) -> tuple[Segment, ...]:
    try:
        _, segments = lineage_from_document(await store.read_document(name, LINEAGE_DOCUMENT))
    except NotFound:
        return ()
    except Corrupt as error:
        found.notes.append(f"{name}: {LINEAGE_DOCUMENT} is unreadable, log files are used instead: {error}")
        return ()
    return tuple(segment for segment in segments if segment.topic == name)


async def _preambles_of_unknown(
    store: SegmentStore,
    topic: Topic | None,
    lineage: Collection[Segment],
    files: Sequence[SegmentFile],
    found: FoundTopic,
) -> list[LogPreamble]:
    """Return one intact preamble of each segment that has log files and is missing from the documents."""
    known = {segment.id for segment in lineage}
    preambles: dict[int, LogPreamble] = {}
    for file in files:
        number = file.segment
        if file.kind is not FileKind.LOG or number in preambles or (topic is not None and number in known):
            continue
        if topic is not None and number in topic.pruned:
            continue
        try:
            preamble = await read_preamble(store, file)
        except (Corrupt, Unsupported) as error:
            found.notes.append(f"{file.path}: {error}")
            continue
        if preamble is not None and (topic is None or preamble.topic_uid == topic.uid):
            preambles[number] = preamble
    return list(preambles.values())


async def read_preamble(store: SegmentStore, file: SegmentFile) -> LogPreamble | None:
    """Read the preamble of a log file; None if it is torn or the file does not exist.

    Raises Corrupt, Unsupported, or StorageFailed.
    """
    try:
        reader = await store.open(file)
    except NotFound:
        return None
    try:
        data, wanted = b"", PREAMBLE_READ_BYTES
        while True:
            data += bytes(await reader.read(len(data), wanted))
            try:
                return decode_preamble(data)[0]
            except Truncated:
                wanted = len(data)
            if not data or len(data) >= file.size_bytes:
                return None
    finally:
        await reader.close()


def _origin(preambles: Sequence[LogPreamble], known: KnownTopic | None) -> Topic | None:
    """Return the topic recorded in its first log files, or the one in etcd if the files belong to it; else None."""
    for preamble in preambles:
        if preamble.origin is not None:
            return preamble.origin
    if known is not None and any(preamble.topic_uid == known.topic.uid for preamble in preambles):
        return known.topic
    return None


def _unexplained(
    topic: Topic, records: Mapping[int, Segment], files: Sequence[SegmentFile], preambles: Sequence[LogPreamble]
) -> list[str]:
    """Return a problem for each segment that has files and no description."""
    foreign = {p.segment for p in preambles if p.topic_uid != topic.uid}
    unknown = {f.segment: f for f in files if f.segment not in records and f.segment not in topic.pruned}
    return [
        f"{topic.name}: {file.path} belongs to segment {number}, which no document and no log file describes: restore "
        f"{LINEAGE_DOCUMENT} from a copy, or move the segment's files away"
        for number, file in sorted(unknown.items())
        if number not in foreign
    ]


async def _with_producers(store: SegmentStore, topic: Topic, segment: Segment, documents: Collection[str]) -> Segment:
    """Return the segment with the producers in its document. Without a document its log files still have them."""
    if segment.is_open or segment.sequences or segment.sequences_complete:
        return segment
    if segment.end_offset == segment.start_offset:
        return replace(segment, sequences_complete=True)
    name = producers_document(segment.id)
    if name not in documents:
        return segment
    try:
        return with_producers(topic.uid, segment, await store.read_document(topic.name, name))
    except NotFound:
        return segment


async def _ends(store: DirectoryStore, topic: Topic, records: Mapping[int, Segment], *, apply: bool) -> dict[int, int]:
    """Return the end offsets, from their files, of segments whose sealing was not recorded."""
    ends = {}
    for number in unsealed(topic, records):
        if apply:
            await store.fence(topic.name, topic.uid, number)
        ends[number] = (await recover_segment(store, topic, records[number])).end_offset
    return ends
