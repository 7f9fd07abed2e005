"""Payloads by reference, as subscribers read them: verified streams, for asyncio and for threads.

A payload comes from the storage itself if this process has access to it, else through the brokers. Either way the
reader checks that it belongs to the record's own topic, and its size and SHA-256 before it passes on the last bytes.
"""

import asyncio
import io
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

from seaweedmq.client.cluster.broker_stream import broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.retry import retrying
from seaweedmq.codec.payload_check import PayloadCheck
from seaweedmq.errors import Closed, InvalidArgument, NotFound, SeaweedMQError, StorageFailed, fresh, unraised
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.blobs import BlobRange
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlobReader
from seaweedmq.runtime.retrying import deadline

log = logging.getLogger(__name__)

T = TypeVar("T")
CHUNK_BYTES = 4 * MIB
"""Bytes of a payload that a stream holds at a time; while one chunk is consumed, none is fetched."""


class PayloadStream:
    """The content of one record's value in order, for asyncio: ``async with``, and ``async for`` over chunks of bytes.

    The stream of a payload by reference raises :class:`PayloadLost` instead of its last bytes if the payload is not the
    one that was published. After an error each further read raises it again, and after a cancelled read Closed: the
    content never ends early in silence. One task reads it.
    """

    def __init__(self, chunks: AsyncGenerator[bytes, None]) -> None:
        self._chunks = chunks
        self._left = b""
        self._is_closed = False
        self._error: SeaweedMQError | None = None

    async def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes, none at the end; with -1 all that are left.

        Raises:
            PayloadLost: If the payload is missing, changed, cut short, or of another topic.
            StorageFailed: If the storage cannot be read for ``read_retry_timeout_s``.
            Unavailable: If no broker answers for that time.
            Closed: If the stream was closed, or an earlier read was cancelled.
        """
        if size >= 0:
            if size and not self._left:
                self._left = await self._next()
            taken, self._left = self._left[:size], self._left[size:]
            return taken
        parts, self._left = [self._left], b""
        while chunk := await self._next():
            parts.append(chunk)
        return b"".join(parts)

    async def _next(self) -> bytes:
        if self._is_closed:
            raise Closed("the stream of the payload is closed: open the message again")
        if self._error is not None:
            raise fresh(self._error)
        try:
            return await anext(self._chunks, b"")
        except BaseException as error:
            # A cancellation also ends the generator, which would then look like the end of the content.
            interrupted = Closed("a read of the payload was interrupted: open the message again")
            self._error = unraised(error) if isinstance(error, SeaweedMQError) else interrupted
            raise

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Iterate over the rest in chunks of at most 4 MiB; raises as :meth:`read`."""
        return self

    async def __anext__(self) -> bytes:
        chunk = await self.read(CHUNK_BYTES)
        if not chunk:
            raise StopAsyncIteration
        return chunk

    async def close(self) -> None:
        """Release the stream. Idempotent."""
        self._is_closed = True
        self._left = b""
        await self._chunks.aclose()

    async def __aenter__(self) -> "PayloadStream":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class BlockingPayload(io.RawIOBase):
    """The content of one record's value as a binary file that is read in order, for threads.

    Reads raise as :meth:`PayloadStream.read`.
    """

    def __init__(self, stream: PayloadStream, run: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        super().__init__()
        self._stream = stream
        self._run = run
        self._left = memoryview(b"")

    def readable(self) -> bool:
        """Whether the file can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read up to the size of ``buffer``, and return the number of bytes: 0 at the end."""
        if self.closed:
            raise ValueError("I/O operation on closed file")
        if not self._left:
            self._left = memoryview(self._run(self._stream.read(CHUNK_BYTES)))
        with memoryview(buffer).cast("B") as target:
            count = min(len(target), len(self._left))
            target[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        """Close the file. Idempotent."""
        if not self.closed:
            self._left = memoryview(b"")
        super().close()


class Payloads:
    """The payloads of one topic's records, as its subscriber reads them."""

    def __init__(self, cluster: Cluster, topic: TopicName) -> None:
        self._cluster = cluster
        self._topic = topic
        self.topic_uid = 0
        """Uid of the topic, as described last; 0 before."""
        self.run: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
        """Function of the synchronous API that runs a coroutine to its end; None in asyncio."""

    def value(self, reference: PayloadReference) -> bytes:
        """Return a whole payload in the synchronous API.

        Raises:
            InvalidArgument: In asyncio, where nothing may block.
            SeaweedMQError: As :meth:`PayloadStream.read`.
        """
        if self.run is None:
            raise InvalidArgument(
                f"the value is a payload by reference, {reference.uri}: use `await message.fetch()` in asyncio, or "
                "read the stream of message.open()"
            )
        found: bytes = self.run(self.fetch(reference))
        return found

    async def fetch(self, reference: PayloadReference) -> bytes:
        """Return a whole payload; raises as :meth:`PayloadStream.read`."""
        async with PayloadStream(self._verified(reference)) as stream:
            return await stream.read()

    def open(self, content: PayloadReference | bytes) -> PayloadStream | BlockingPayload:
        """Return the stream of a payload, or of a value in the frame; nothing is read yet."""
        chunks = self._verified(content) if isinstance(content, PayloadReference) else _once(content)
        stream = PayloadStream(chunks)
        return stream if self.run is None else BlockingPayload(stream, self.run)

    async def _verified(self, reference: PayloadReference) -> AsyncGenerator[bytes, None]:
        check = PayloadCheck(reference, self._topic, self.topic_uid)
        if not check.left_bytes:
            check.finish()
        reader: BlobReader = _OwnAccess(
            self._cluster.own_blobs, _BrokerBlobs(self._cluster, self._topic, self.topic_uid)
        )
        while check.left_bytes:
            try:
                data = await reader.read(reference.uri, check.position, min(CHUNK_BYTES, check.left_bytes))
            except NotFound as error:
                raise check.missing(error) from error
            await asyncio.to_thread(check.update, data)
            yield data


class _OwnAccess:
    """Reads from the storage itself, and from the brokers from the first failure on."""

    def __init__(self, own: BlobReader | None, brokers: BlobReader) -> None:
        self._own = own
        self._brokers = brokers

    async def read(self, uri: str, position: int, length: int) -> bytes:
        if self._own is not None:
            try:
                return await self._own.read(uri, position, length)
            except (NotFound, StorageFailed) as error:
                log.info("payload is read through the brokers: %s: %s", uri, error)
                self._own = None
        return await self._brokers.read(uri, position, length)


class _BrokerBlobs:
    """The payloads of a topic, as brokers serve them: any broker serves each."""

    def __init__(self, cluster: Cluster, topic: TopicName, topic_uid: int) -> None:
        self._cluster = cluster
        self._topic = topic
        self._topic_uid = topic_uid

    async def read(self, uri: str, position: int, length: int) -> bytes:
        config = self._cluster.config
        wanted = BlobRange(topic=self._topic, topic_uid=self._topic_uid, uri=uri, position=position, length=length)
        async for attempt in retrying(config, self._cluster.env.rng, deadline(config.read_retry_timeout_s)):
            with attempt:
                return await self._attempt(wanted, self._cluster.addresses()[0])
        raise AssertionError("retrying ended without a result")

    async def _attempt(self, wanted: BlobRange, address: str) -> bytes:
        parts = []
        async with broker_stream(
            self._cluster, address, lambda api: api.read_blob(_once(wanted)), f"a payload of {self._topic}"
        ) as stream:
            async for reply in stream.replies:
                parts.append(reply.data)
                stream.expect(self._cluster.config.rpc_timeout_s)
        return b"".join(parts)


async def _once(item: T) -> AsyncGenerator[T, None]:
    yield item
