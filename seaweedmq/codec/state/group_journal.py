"""Conversion of the journals of native groups: changes of the groups' etcd keys, written to the storage.

A journal is a sequence of frames: u32 length of the text, u64 XXH3-64 of the text, the text, which is one JSON object::

    {"v": 1, "kind": "part" | "snapshot" | "changes", "revision": N, "changes": [["put", key, value], ...]}

It begins with all groups as they were at one revision: parts, the last of which has the kind ``snapshot``. Each later
frame has the changes of one etcd transaction, including ``["delete", key]`` and ``["delete-prefix", key]``. The bytes
behind the first frame that is not whole and sound are a torn tail: nothing there was acknowledged.
"""

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from xxhash import xxh3_64_intdigest

from seaweedmq.codec.state.json_fields import METADATA_VERSION, to_json
from seaweedmq.errors import Corrupt, Unsupported

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""Longest text of a frame in bytes: a damaged length must not cause gigabytes to be allocated."""

_HEAD = struct.Struct("<IQ")


class JournalKind(StrEnum):
    """The kind of a journal frame."""

    PART = "part"
    """Groups as of a revision, followed by more of them."""
    SNAPSHOT = "snapshot"
    """Last part: the journal has every group from here on."""
    CHANGES = "changes"


class JournalChange(NamedTuple):
    """A change of one key, or of all keys with a prefix."""

    key: str
    value: bytes | None
    """Value of the key; None deletes it."""
    is_prefix: bool = False
    """Whether all keys that begin with ``key`` are deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalFrame:
    """Changes of the groups' keys."""

    kind: JournalKind
    revision: int
    """Revision of etcd at which the changes were made."""
    changes: tuple[JournalChange, ...]


def encode_journal_frame(frame: JournalFrame) -> bytes:
    """Return the bytes of a frame."""
    text = to_json(
        {
            "v": METADATA_VERSION,
            "kind": frame.kind.value,
            "revision": frame.revision,
            "changes": [_fields(change) for change in frame.changes],
        }
    )
    return _HEAD.pack(len(text), xxh3_64_intdigest(text)) + text


def journal_frames(content: bytes) -> Iterator[JournalFrame]:
    """Yield the frames of a journal up to its torn tail, if it has one.

    Raises Corrupt if a frame is sound but not one of a journal, and Unsupported for a newer version.
    """
    at = 0
    while at + _HEAD.size <= len(content):
        length, checksum = _HEAD.unpack_from(content, at)
        text = content[at + _HEAD.size : at + _HEAD.size + length]
        if length > FRAME_BYTES_MAX or len(text) < length or xxh3_64_intdigest(text) != checksum:
            return
        yield _frame(text)
        at += _HEAD.size + length


def replayed(content: bytes) -> dict[str, bytes] | None:
    """Return the groups' keys with their final values; None if the journal's snapshot is not whole.

    Raises as :func:`journal_frames`.
    """
    values: dict[str, bytes] = {}
    revisions: dict[str, int] = {}
    is_whole = False
    for frame in journal_frames(content):
        is_whole |= frame.kind is JournalKind.SNAPSHOT
        for change in frame.changes:
            if change.value is not None:
                if revisions.get(change.key, 0) <= frame.revision:
                    values[change.key], revisions[change.key] = change.value, frame.revision
                continue
            gone = [k for k in values if k.startswith(change.key)] if change.is_prefix else [change.key]
            for key in gone:
                if revisions.get(key, 0) < frame.revision:  # otherwise a put of the same transaction, which stays
                    values.pop(key, None)
                    revisions[key] = frame.revision
    return values if is_whole else None


def _fields(change: JournalChange) -> list[str]:
    if change.value is not None:
        return ["put", change.key, change.value.decode()]
    return ["delete-prefix" if change.is_prefix else "delete", change.key]


def _frame(text: bytes) -> JournalFrame:
    try:
        document: Any = json.loads(text)
        if document["v"] != METADATA_VERSION:
            raise Unsupported(
                f"journal of groups has version {document['v']}, this build reads {METADATA_VERSION}: upgrade it"
            )
        return JournalFrame(
            kind=JournalKind(document["kind"]),
            revision=int(document["revision"]),
            changes=tuple(_change(*fields) for fields in document["changes"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"journal of groups: unreadable frame ({error}); another program wrote it") from error


def _change(kind: str, key: str, value: str = "") -> JournalChange:
    match kind:
        case "put":
            return JournalChange(key, value.encode())
        case "delete":
            return JournalChange(key, None)
        case "delete-prefix":
            return JournalChange(key, None, is_prefix=True)
    raise ValueError(f"{kind!r} is not a kind of change")
