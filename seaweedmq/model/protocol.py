"""What clients and brokers say to each other, as values.

``rpc`` puts them on the wire; the simulation passes them as they are.

A publish stream serves one segment and one producer: the client opens it, then sends frames; the broker answers
``PublishReady``, then acknowledgements in the order of the frames, and at the end of the segment ``PublishSealed``.
A frame too large for a message of its stream travels as ``FrameHead`` and then its payload in pieces, so that the
receiver makes room before it takes the payload in.
A subscribe stream serves one segment: the client opens it with a credit in bytes and adds to it as it consumes; the
broker sends while it has credit, and a run of frames may take the credit below zero once: a credit below one frame does
not stall.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.model.config import KIB
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName

PROTOCOL_VERSION = 2
"""Of clients and brokers; another one is refused. Raised when one of the two would misunderstand the other."""

SMALL_MESSAGE_BYTES = 64 * KIB
"""Frames of one message that every stream may carry at any time; more needs memory that is set aside for it."""
LARGE_MESSAGE_BYTES = 1536 * KIB
"""Most frames of one message to a broker; one frame of the 1 MiB that publishers aim for always fits."""
PIECE_BYTES = 1024 * KIB
"""Most of a large frame's payload in one message."""

Frames: TypeAlias = bytes | memoryview
"""One or more frames back to back, whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOpen:
    topic: TopicName
    segment: int
    epoch: int
    producer_id: int
    producer_epoch: int
    first_sequence: int = 0
    """The producer repeats nothing below: it is acknowledged, or given up. A broker that does not know it begins
    here."""
    topic_uid: int = 0
    """Of the topic that the client means; 0: whichever has the name."""


@dataclass(frozen=True, slots=True)
class PublishFrames:
    data: Frames


@dataclass(frozen=True, slots=True)
class FrameHead:
    """The header of a frame whose payload follows in pieces, alone in messages of frames, before anything else."""

    header: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishReady:
    next_sequence: int
    """Sequences below are stored already; the client starts here or repeats frames below."""
    frame_bytes_max: int
    in_flight_frames_max: int
    """Frames the client may have sent and not seen acknowledged."""
    in_flight_bytes_max: int
    message_bytes_max: int = LARGE_MESSAGE_BYTES
    """Most frames of one message; a larger frame is sent as ``FrameHead`` and pieces."""


@dataclass(frozen=True, slots=True)
class FrameAck:
    """Records ``first_sequence ... + record_count`` of the producer are kept at ``base_offset ...``."""

    first_sequence: int
    record_count: int
    base_offset: int


@dataclass(frozen=True, slots=True)
class PublishAck:
    frames: tuple[FrameAck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishSealed:
    """Last message of a stream whose segment is closed: what was not committed goes to the successors."""

    end_offset: int
    next_sequence: int
    """Of this producer: everything below is committed here, nothing else ever will be."""
    recent: tuple[FrameAck, ...]
    """The producer's last committed frames, so that a lost acknowledgement can be made good."""
    successors: tuple[int, ...]


PublishRequest: TypeAlias = PublishOpen | FrameHead | PublishFrames
PublishReply: TypeAlias = PublishReady | PublishAck | PublishSealed


class StartKind(StrEnum):
    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscriber begins. ``value`` is the offset, or microseconds since 1970 UTC; 0 for the other kinds."""

    kind: StartKind
    value: int = 0


EARLIEST = Start(StartKind.EARLIEST)
LATEST = Start(StartKind.LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOpen:
    topic: TopicName
    segment: int
    start: Start
    credit_bytes: int
    topic_uid: int = 0
    """Of the topic that the client means; 0: whichever has the name."""


@dataclass(frozen=True, slots=True)
class SubscribeCredit:
    credit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeReady:
    start_offset: int
    """Where delivery begins: the client drops records of the first frame below it."""
    high_watermark: int
    """First offset that was not committed when the stream opened."""


@dataclass(frozen=True, slots=True)
class SubscribeFrames:
    data: Frames


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeEnd:
    """The segment is sealed and all of it was sent."""

    end_offset: int
    successors: tuple[int, ...]


SubscribeRequest: TypeAlias = SubscribeOpen | SubscribeCredit
SubscribeReply: TypeAlias = SubscribeReady | SubscribeFrames | SubscribeEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class Which:
    """The segments a description should have. Open ones all come at once; sealed ones, which may be very many, in pages
    by id."""

    open: bool = True
    sealed_above: int | None = -1
    """Sealed ones with a higher id, a page of them; None: no sealed ones."""
    ids: tuple[int, ...] = ()
    """These in any case, as far as they are known."""


ALL = Which()
OPEN = Which(sealed_above=None)
IDS_MAX = 10_000
"""Ids in one ``Which``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic, the segments that were asked for (by id) and the addresses of the brokers that live now.

    A segment that was asked for by its id and is not in it, though it is below ``topic.next_segment``, was pruned: it
    was sealed long ago, and its records, if it ever had any, were removed by retention.
    """

    topic: Topic
    segments: tuple[Segment, ...]
    addresses: Mapping[str, str]
    """Broker id -> host:port, of every live broker: any of them serves a sealed segment."""
    revision: int = 0
    """Of the topic's record, which changes with its open segments."""
    more_above: int | None = None
    """More sealed segments that were asked for have an id above this one; None: these are all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentStats:
    """How far one segment is, as its primary (open) or the metadata (sealed) knows."""

    segment: int
    start_offset: int
    """Earliest offset that retention has left, as of some seconds ago."""
    high_watermark: int
    flushed_offset: int
    """First offset not yet fsynced."""
    bytes_per_s: float
    records_per_s: float
