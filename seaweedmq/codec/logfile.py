"""Format of the preamble of a log file, which frames follow back to back.

Layout: 8 bytes magic ``SWMQLOG1``, u32 length of the JSON, the JSON, u64 XXH3-64 of everything before it. The JSON has
the file's segment, the producer table as of its beginning, and how much of the segment was flushed by then. So the last
files of a segment alone determine its end offset and its producers. The JSON is padded with spaces, so that the frames
begin at a multiple of 16 bytes and a mapped file gives Arrow aligned buffers.
"""

import json
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import Truncated
from seaweedmq.codec.state.json_fields import JsonFields
from seaweedmq.codec.state.metadata import lineage_fields, segment_from_fields, topic_fields, topic_from_fields
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ProducerState, Segment
from seaweedmq.model.topic import Topic, TopicName

LOG_MAGIC = b"SWMQLOG1"
LOG_VERSION = 1
JSON_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of the JSON, which keep a damaged length from causing gigabytes to be allocated. A broker stays below:
a producer takes at most 59 bytes, and a broker has 100,000 of them at a time, or as a follower fewer than seven times
as many; their frames take 1 MiB in all."""
ALIGNMENT_BYTES = 16

_PREFIX = struct.Struct("<8sI")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPreamble:
    """The identity of a log file and its beginning."""

    topic: TopicName
    topic_uid: int
    """Uid that distinguishes the topic from an earlier one of the same name."""
    segment: int
    base_offset: int
    """Offset of the first frame."""
    writer: str
    """Id of the broker that writes the file."""
    flushed: int | None = None
    """Offset below which everything was flushed before the file was created, at most ``base_offset``. A file may begin
    while the previous one still waits for its fsync, so its existence proves nothing about the offsets between the two.
    None is unknown, in files of versions that did not record it."""
    producers: tuple[ProducerState, ...] = ()
    """Producer states as of ``base_offset``, the longest idle first."""
    lineage: tuple[Segment, ...] = ()
    """Record of the segment itself, then those of ``core.lineage.provenance``, without producers. Empty in files of
    versions that did not record them."""
    origin: Topic | None = None
    """Record of the topic, in files of the topic's first segments: no document may hold the topic yet."""


def encode_preamble(p: LogPreamble) -> bytes:
    """Return the bytes of a preamble, a multiple of 16, or raise InvalidArgument if the JSON has more than 64 MiB."""
    document: dict[str, Any] = {
        "v": LOG_VERSION,
        "topic": str(p.topic),
        "topic_uid": p.topic_uid,
        "segment": p.segment,
        "base_offset": p.base_offset,
        "writer": p.writer,
        "producers": [
            (
                r.producer_id,
                r.producer_epoch,
                r.next_sequence,
                [(a.first_sequence, a.record_count, a.base_offset) for a in r.recent],
            )
            for r in p.producers
        ],
    }
    if p.flushed is not None:
        document["flushed"] = p.flushed
    if p.lineage:
        document["lineage"] = [lineage_fields(segment) for segment in p.lineage]
    if p.origin is not None:
        document["origin"] = topic_fields(p.origin)
    text = json.dumps(document, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-(_PREFIX.size + len(text) + _U64.size) % ALIGNMENT_BYTES)
    if len(text) > JSON_BYTES_MAX:
        raise InvalidArgument(f"log preamble of {len(text)} bytes: at most {JSON_BYTES_MAX}; remember fewer producers")
    covered = _PREFIX.pack(LOG_MAGIC, len(text)) + text
    return covered + _U64.pack(xxh3_64_intdigest(covered))


def segment_preamble(
    topic: Topic,
    segment: Segment,
    base: int,
    writer: str,
    producers: Iterable[ProducerState],
    lineage: Iterable[Segment],
    flushed: int,
) -> bytes:
    """Return the preamble of a log file of a segment; the arguments are the fields of :class:`LogPreamble`.

    Raises InvalidArgument as :func:`encode_preamble`.
    """
    return encode_preamble(
        LogPreamble(
            topic=topic.name,
            topic_uid=topic.uid,
            segment=segment.id,
            base_offset=base,
            writer=writer,
            flushed=flushed,
            producers=tuple(producers),
            lineage=tuple(lineage),
            origin=topic if not segment.predecessors and base == segment.start_offset else None,
        )
    )


def decode_preamble(data: bytes | memoryview) -> tuple[LogPreamble, int]:
    """Read a preamble, and return it with the position of the first frame.

    Raises:
        Truncated: If the data is too short; read more of the file. At the end of the file it is a torn preamble.
        Corrupt: If it is not a log file, or damaged.
        Unsupported: If a later version wrote it.
    """
    view = memoryview(data)
    if len(view) < _PREFIX.size:
        if bytes(view[: len(LOG_MAGIC)]) != LOG_MAGIC[: len(view)]:
            raise Corrupt(f"log preamble: begins with {bytes(view[:8])!r} instead of {LOG_MAGIC!r}; not a log file")
        raise Truncated(f"log preamble: {len(view)} bytes where it takes more than {_PREFIX.size}")
    magic, length = _PREFIX.unpack_from(view)
    if magic != LOG_MAGIC:
        raise Corrupt(f"log preamble: begins with {magic!r} instead of {LOG_MAGIC!r}; not a log file")
    if length > JSON_BYTES_MAX:
        raise Corrupt(f"log preamble: length {length} is above {JSON_BYTES_MAX}; the file is damaged")
    end = _PREFIX.size + length
    used = end + _U64.size
    if len(view) < used:
        raise Truncated(f"log preamble: {len(view)} bytes where it takes {used}")
    (expected,) = _U64.unpack_from(view, end)
    checksum = xxh3_64_intdigest(view[:end])
    if checksum != expected:
        raise Corrupt(f"log preamble: checksum {checksum:016x} instead of {expected:016x}; the file is damaged")
    return _parse(bytes(view[_PREFIX.size : end])), used


def _parse(text: bytes) -> LogPreamble:
    try:
        document = json.loads(text)
        version = _whole(document["v"])
        if version != LOG_VERSION:
            raise Unsupported(f"log preamble: version {version}, this build reads {LOG_VERSION}; upgrade it")
        return LogPreamble(
            topic=TopicName.parse(_text(document["topic"])),
            topic_uid=_whole(document["topic_uid"]),
            segment=_whole(document["segment"]),
            base_offset=_whole(document["base_offset"]),
            writer=_text(document["writer"]),
            flushed=_flushed(document),
            producers=tuple(
                ProducerState(
                    producer_id=_whole(producer_id),
                    producer_epoch=_whole(epoch),
                    next_sequence=_whole(next_sequence),
                    recent=tuple(FrameAck(_whole(a), _whole(b), _whole(c)) for a, b, c in recent),
                )
                for producer_id, epoch, next_sequence, recent in document["producers"]
            ),
            lineage=tuple(
                segment_from_fields(JsonFields.of("segment", fields)) for fields in document.get("lineage", ())
            ),
            origin=topic_from_fields(JsonFields.of("topic", document["origin"])) if "origin" in document else None,
        )
    except (ValueError, KeyError, TypeError, RecursionError, InvalidArgument) as e:
        raise Corrupt(f"log preamble: unreadable JSON ({type(e).__name__}: {e}); written by something else") from e


def _flushed(document: dict[str, Any]) -> int | None:
    if "flushed" not in document:
        return None
    flushed = _whole(document["flushed"])
    if flushed > document["base_offset"]:
        raise ValueError(f"flushed {flushed} is beyond base_offset {document['base_offset']}")
    return flushed


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a whole number from 0")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value
