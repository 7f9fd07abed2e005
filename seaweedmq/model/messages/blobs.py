"""The messages of an upload stream, which carries one payload to the storage of a topic, part by part.

The client opens the stream. The broker reports the parts that an interrupted upload of the same id left, then answers
``UploadReady``. For each other part the client sends ``PartBegin``, its bytes and ``PartEnd``, and the broker answers
``PartStored`` once the part survives a crash. ``UploadFinish`` makes the payload readable; ``UploadDone`` ends the
stream. A part that was stored is found again by the next stream with this id, through any broker.
"""

from dataclasses import dataclass
from typing import TypeAlias

from seaweedmq.model.config import MIB
from seaweedmq.model.topic import TopicName

PART_BYTES_MAX = 64 * MIB
"""Limit of the bytes of one part: what a broken connection repeats at most."""
PARTS_MAX = 10_000
"""Limit of the parts of one payload, which is also that of S3."""
DATA_BYTES_MAX = 1 * MIB
"""Limit of the bytes of a payload in one message to a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadOpen:
    """The first message of a client."""

    topic: TopicName
    topic_uid: int
    """Uid of the topic; never 0: a payload belongs to one topic, not to its name."""
    upload_id: str
    """Id that the client chose, 32 hexadecimal digits. The same id finds the parts of an interrupted upload."""
    size_bytes: int
    """Size of the payload; 0 if the client does not know it yet."""


@dataclass(frozen=True, slots=True)
class PartBegin:
    """A part follows: its number, from 0. Its bytes replace those of an earlier part of this number."""

    number: int


@dataclass(frozen=True, slots=True)
class PartData:
    """The next bytes of the part."""

    data: bytes


@dataclass(frozen=True, slots=True)
class PartEnd:
    """The end of the part, with the XXH3-128 digest of its bytes."""

    digest: bytes


@dataclass(frozen=True, slots=True)
class UploadFinish:
    """All parts are there."""

    parts: int
    size_bytes: int


UploadRequest: TypeAlias = UploadOpen | PartBegin | PartData | PartEnd | UploadFinish


@dataclass(frozen=True, slots=True)
class PartFound:
    """A part that an earlier upload of the id stored, with the XXH3-128 digest of its bytes."""

    number: int
    size_bytes: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class UploadReady:
    """The broker takes parts."""

    uri: str
    """Path of the payload below the storage root."""
    message_bytes_max: int
    """Limit of the bytes in one ``PartData``."""
    is_complete: bool = False
    """Whether the found parts are a whole payload: if they have the right content, nothing is left to do."""


@dataclass(frozen=True, slots=True)
class PartStored:
    """The part survives a crash."""

    number: int


@dataclass(frozen=True, slots=True)
class UploadDone:
    """The payload is whole, and survives a crash. Last message of the stream."""


UploadReply: TypeAlias = PartFound | UploadReady | PartStored | UploadDone


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobRange:
    """A range of a payload to be read: the only message of a client on a read stream."""

    topic: TopicName
    topic_uid: int
    """Uid of the topic; never 0."""
    uri: str
    """Path of the payload below the storage root; the broker rejects one of another topic."""
    position: int
    length: int


@dataclass(frozen=True, slots=True)
class BlobData:
    """The next bytes of the range. They end early only at the end of the payload."""

    data: bytes
