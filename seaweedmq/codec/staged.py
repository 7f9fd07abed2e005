"""Conversion of ``manifest.json``, ``progress.json`` and ``done.json`` of a staged batch.

Each ends with a checksum of the bytes before it. On a file system that cannot publish a file by its name, a partly
written file must not pass for a whole one.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from xxhash import xxh3_64_hexdigest

from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model import staged
from seaweedmq.model.ring import KeyRange

T = TypeVar("T")

_VERSION = 1
_MARK = b"\n#"
"""Separator between the JSON, which is one line, and its checksum."""


def manifest_to_bytes(manifest: staged.Manifest) -> bytes:
    """Return ``manifest.json``."""
    return _to_bytes(
        topic_uid=manifest.topic_uid,
        batch=manifest.batch,
        producer_id=manifest.producer_id,
        ring=_range(manifest.ring),
        files=[[file.name, file.size_bytes, file.record_count] for file in manifest.files],
        roots=[_segment_to_json(root) for root in manifest.roots],
        **({"checkpoint": manifest.checkpoint} if manifest.checkpoint else {}),
    )


def manifest_from_bytes(data: bytes, path: str) -> staged.Manifest:
    """Return the manifest of ``manifest.json``; Corrupt, naming ``path``, or Unsupported for a later version."""

    def read(fields: Mapping[str, Any]) -> staged.Manifest:
        return staged.Manifest(
            topic_uid=_number(fields["topic_uid"]),
            batch=_number(fields["batch"]),
            producer_id=_number(fields["producer_id"]),
            ring=_range_of(fields["ring"]),
            files=tuple(
                staged.StagedFile(_text(n), _number(size), _number(count)) for n, size, count in fields["files"]
            ),
            roots=tuple(map(_segment_from_json, fields["roots"])),
            checkpoint=str(fields.get("checkpoint", "")),
        )

    return _from_bytes(data, path, read)


def progress_to_bytes(progress: staged.BatchProgress) -> bytes:
    """Return ``progress.json``."""
    return _to_bytes(
        places=[_segment_to_json(staged) for staged in progress.segments],
        finished=[[segment, end.kept, list(end.successors)] for segment, end in progress.finished.items()],
        reached=[[segment, at.sequence, at.offset] for segment, at in progress.reached.items()],
    )


def progress_from_bytes(data: bytes, path: str) -> staged.BatchProgress:
    """Return the progress of ``progress.json``; raises as :func:`manifest_from_bytes`."""

    def read(fields: Mapping[str, Any]) -> staged.BatchProgress:
        return staged.BatchProgress(
            segments=tuple(map(_segment_from_json, fields["places"])),
            finished={
                _number(segment): staged.FinishedSegment(_number(kept), tuple(map(_number, successors)))
                for segment, kept, successors in fields["finished"]
            },
            reached={
                _number(segment): staged.SegmentProgress(_number(sequence), _number(offset))
                for segment, sequence, offset in fields["reached"]
            },
        )

    return _from_bytes(data, path, read)


def done_to_bytes(done: staged.CompletedBatch) -> bytes:
    """Return ``done.json``."""
    noted = {"checkpoint": done.checkpoint} if done.checkpoint else {}
    return _to_bytes(batch=done.batch, ranges=[_range(slots) for slots in done.ranges], **noted)


def done_from_bytes(data: bytes, path: str) -> staged.CompletedBatch:
    """Return the completed batch of ``done.json``; raises as :func:`manifest_from_bytes`."""

    def read(fields: Mapping[str, Any]) -> staged.CompletedBatch:
        return staged.CompletedBatch(
            batch=_number(fields["batch"]),
            ranges=tuple(map(_range_of, fields["ranges"])),
            checkpoint=str(fields.get("checkpoint", "")),
        )

    return _from_bytes(data, path, read)


def _to_bytes(**fields: Any) -> bytes:
    text = json.dumps({"v": _VERSION, **fields}, separators=(",", ":")).encode()
    return b"".join((text, _MARK, xxh3_64_hexdigest(text).encode(), b"\n"))


def _from_bytes(data: bytes, path: str, read: Callable[[Mapping[str, Any]], T]) -> T:
    text, mark, checksum = data.partition(_MARK)
    if not mark or checksum.strip() != xxh3_64_hexdigest(text).encode():
        raise Corrupt(f"{path} is damaged or partly written: restore it, or remove its folder")
    fields = json.loads(text)
    if fields["v"] != _VERSION:
        raise Unsupported(f"{path} has version {fields['v']}, this build reads {_VERSION}: upgrade seaweedmq here")
    try:
        return read(fields)
    except (KeyError, TypeError, ValueError, InvalidArgument) as error:
        raise Corrupt(f"{path} has an unknown format ({error!r}): remove its folder") from error


def _range(slots: KeyRange) -> list[int]:
    return [slots.lo, slots.hi]


def _range_of(value: Any) -> KeyRange:
    lo, hi = value
    return KeyRange(_number(lo), _number(hi))


def _segment_to_json(staged: staged.StagedSegment) -> list[Any]:
    return [staged.segment, *_range(staged.slots), list(staged.predecessors)]


def _segment_from_json(value: Any) -> staged.StagedSegment:
    segment, lo, hi, predecessors = value
    return staged.StagedSegment(_number(segment), _range_of((lo, hi)), tuple(map(_number, predecessors)))


def _number(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is not a number from 0")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str) or "/" in value:
        raise ValueError(f"{value!r} is not a name")
    return value
