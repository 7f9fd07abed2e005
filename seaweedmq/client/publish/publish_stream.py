"""One publish stream to a segment: sends the frames of a source, and passes the broker's replies to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Protocol

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.codec.frame import HEADER_BYTES, split_payload
from seaweedmq.errors import ConnectionRefused, SeaweedMQError, Unavailable
from seaweedmq.model.config import KIB
from seaweedmq.model.messages import publish
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, SENT_PIECE_BYTES, FrameHead, Frames
from seaweedmq.model.segment import Segment
from seaweedmq.rpc.messages.frames import pack_frames

MESSAGE_BYTES = 256 * KIB
"""Limit up to which small frames are joined: one message costs more than a copy of this size."""


UPDATE_SILENCE_S = 1.5
"""Time without an update after which brokers are queried about a segment whose broker is lost. Its segments end soon,
and other brokers report that, or that nothing is new, by themselves."""


class FrameSource(Protocol):
    """A source of one segment's frames, and the receiver of its broker's replies.

    An error that it raises ends the stream.
    """

    @property
    def producer(self) -> tuple[int, int]:
        """The producer's id and epoch."""

    @property
    def first_sequence(self) -> int:
        """The lowest sequence that may be sent."""

    @property
    def in_flight(self) -> int:
        """The number of frames in flight."""

    def opened(self, ready: publish.PublishReady, message_bytes: int) -> None:
        """Handle the broker's first reply; several frames in a message have at most ``message_bytes`` together."""

    async def take(self) -> Sequence[Frames]:
        """Return the frames of the next message; none if none may be sent before :meth:`PublishStream.wake`."""

    async def acked(self, ack: publish.PublishAck) -> bool:
        """Handle acknowledgements. Return whether the source is done, which ends the stream."""


class PublishStream:
    """A publish stream to one segment at the broker with this address. Used once."""

    def __init__(self, cluster: Cluster, address: str, segment: Segment, topic_uid: int, source: FrameSource) -> None:
        self._cluster = cluster
        self._address = address
        self._segment = segment
        self._topic_uid = topic_uid
        self._source = source
        self._message_bytes_max = LARGE_MESSAGE_BYTES
        self._work = asyncio.Event()
        self._broker_stream: BrokerStream[publish.PublishReply] | None = None
        self._is_over = False

    def wake(self) -> None:
        """Take further frames of the source."""
        self._work.set()

    def end(self, error: SeaweedMQError) -> None:
        """End the stream with an error that is not the broker's fault."""
        if self._broker_stream is not None:
            self._broker_stream.end(error)

    async def run(self) -> publish.PublishSealed | None:
        """Send frames and handle replies until the segment is sealed, or the source is done, which returns None."""
        try:
            async with broker_stream(
                self._cluster, self._address, lambda api: api.publish(self._requests()), str(self._segment)
            ) as self._broker_stream:
                async for reply in self._broker_stream.replies:
                    if isinstance(reply, publish.PublishAck):
                        if await self._source.acked(reply):
                            return None
                        self._expect_ack(self._source.in_flight > 0)
                    elif isinstance(reply, publish.PublishReady):
                        self._expect_ack(False)
                        self._message_bytes_max = reply.message_bytes_max
                        self._source.opened(reply, min(MESSAGE_BYTES, reply.message_bytes_max))
                        self.wake()
                    else:
                        return reply
        finally:
            self._is_over = True
        raise Unavailable(f"broker {self._address} ended the stream to {self._segment}: retry")

    async def _requests(self) -> AsyncIterator[publish.PublishRequest]:
        yield publish_open(self._segment, self._topic_uid, self._source.producer, self._source.first_sequence)
        try:
            while not self._is_over:
                frames = await self._source.take()
                if not frames:
                    self._work.clear()
                    await self._work.wait()
                    continue
                if self._source.in_flight == len(frames):
                    self._expect_ack(True)
                if len(frames) == 1 and len(frames[0]) > self._message_bytes_max:
                    for request in in_pieces(frames[0]):
                        yield request
                else:
                    yield publish.PublishFrames(frames[0] if len(frames) == 1 else pack_frames(frames))
        except SeaweedMQError as error:
            self.end(error)

    def _expect_ack(self, is_expected: bool) -> None:
        if self._broker_stream is not None:
            self._broker_stream.expect(self._cluster.config.stall_timeout_s if is_expected else None)


def publish_open(
    segment: Segment, topic_uid: int, producer: tuple[int, int], first_sequence: int
) -> publish.PublishOpen:
    """Make the first message of a stream."""
    producer_id, producer_epoch = producer
    return publish.PublishOpen(
        topic=segment.topic,
        segment=segment.id,
        epoch=segment.epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        first_sequence=first_sequence,
        topic_uid=topic_uid,
    )


def in_pieces(frame: Frames) -> Iterator[publish.PublishRequest]:
    """Yield the messages of a frame that is too large for one."""
    yield FrameHead(bytes(frame[:HEADER_BYTES]))
    for piece in split_payload(memoryview(frame)[HEADER_BYTES:], SENT_PIECE_BYTES):
        yield publish.PublishFrames(piece)


def retry_pause_s(error: SeaweedMQError, failures: int, pauses: Callable[[int], float]) -> float:
    """Return the pause after a failed stream, by the number of failures since the last progress.

    ``pauses`` are those after failures of a broker that may still answer.
    """
    # Connection refused: the process has ended, and its segments move to other brokers.
    return UPDATE_SILENCE_S if isinstance(error, ConnectionRefused) else pauses(failures)
