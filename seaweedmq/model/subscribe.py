"""The subscribe stream, as values: one segment, from where the reader wants it.

The client opens it with a credit in bytes and adds to it as it consumes; the broker sends while it has credit, and a
run of frames may take the credit below zero once: a credit below one frame does not stall.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from seaweedmq.model.frames import FrameHead, Frames
from seaweedmq.model.topic import TopicName


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
    skip_missing: bool = False
    """Whether the broker continues behind records that are lost, and reports their offsets with ``SubscribeSkipped``;
    else the stream ends with ``DataLoss`` there."""
    takes_pieces: bool = False
    """Whether the broker sends a large frame as ``FrameHead`` and then its payload in pieces, each in a message of
    frames; else it sends every frame whole."""


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
class SubscribeSkipped:
    """Offsets ``[start_offset, end_offset)`` whose records are lost; delivery continues behind them.

    The broker sends it only to clients that asked for ``skip_missing``.
    """

    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscribeEnd:
    """The segment is sealed and all of it was sent."""

    end_offset: int
    successors: tuple[int, ...]


SubscribeRequest: TypeAlias = SubscribeOpen | SubscribeCredit


SubscribeReply: TypeAlias = SubscribeReady | SubscribeFrames | FrameHead | SubscribeSkipped | SubscribeEnd
