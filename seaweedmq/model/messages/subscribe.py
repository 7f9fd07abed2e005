"""The messages of a subscribe stream, which reads one segment from a chosen start.

The client opens the stream with a credit in bytes and adds to it as it consumes. The broker sends while it has credit.
One run of frames may take the credit below zero: a credit smaller than a frame does not stall the stream.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.model.messages.frames import FrameHead, Frames
from seaweedmq.model.topic import TopicName


class StartKind(StrEnum):
    """The kind of a subscriber's start."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """A subscriber's start; ``value`` is the offset, microseconds since 1970 UTC, or 0 for the other kinds."""

    kind: StartKind
    value: int = 0


EARLIEST = Start(StartKind.EARLIEST)


LATEST = Start(StartKind.LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeOpen:
    """The first message of a client: segment, start and credit."""

    topic: TopicName
    segment: int
    start: Start
    credit_bytes: int
    topic_uid: int = 0
    """Uid of the topic that the client means; 0: any topic of this name."""
    skip_missing: bool = False
    """Whether the broker continues behind lost records and reports their offsets with ``SubscribeSkipped``. Otherwise
    the stream ends with ``DataLoss`` there."""
    takes_pieces: bool = False
    """Whether the broker sends a large frame as ``FrameHead`` and then its payload in pieces, each in a message of
    frames. Otherwise it sends every frame whole."""


@dataclass(frozen=True, slots=True)
class SubscribeCredit:
    """Bytes added to the credit of the stream."""

    credit_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeReady:
    """The first reply of the broker."""

    start_offset: int
    """First offset of the delivery; the client drops records of the first frame below it."""
    high_watermark: int
    """First offset that was not committed when the stream opened."""


@dataclass(frozen=True, slots=True)
class SubscribeFrames:
    """Committed frames in offset order."""

    data: Frames


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeSkipped:
    """Offsets ``[start_offset, end_offset)`` whose records are lost; delivery continues behind them.

    The broker sends it only to clients that set ``skip_missing``.
    """

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeEnd:
    """The last reply: the segment is sealed and the broker has sent all of it."""

    end_offset: int
    successors: tuple[int, ...]


SubscribeRequest: TypeAlias = SubscribeOpen | SubscribeCredit


SubscribeReply: TypeAlias = SubscribeReady | SubscribeFrames | FrameHead | SubscribeSkipped | SubscribeEnd
