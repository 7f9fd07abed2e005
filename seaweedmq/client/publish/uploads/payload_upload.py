"""The upload of one payload to the storage of a topic, through any broker, resumed by part."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from concurrent.futures import Executor
from contextlib import aclosing

from xxhash import xxh3_128

from seaweedmq.client.cluster.broker_stream import BrokerStream, broker_stream
from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.publish.uploads.sources import Source, new_upload_id
from seaweedmq.client.retry import retrying
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.blobs import (
    PartBegin,
    PartData,
    PartEnd,
    PartFound,
    PartStored,
    UploadDone,
    UploadFinish,
    UploadOpen,
    UploadReady,
    UploadReply,
    UploadRequest,
)
from seaweedmq.model.reference import PayloadReference
from seaweedmq.model.topic import TopicName

CHUNK_BYTES = 1 * MIB
"""Limit of the bytes of a payload in one message, and of what is read at once."""
STALL_S = 60.0
"""Longest time in seconds in which a broker takes no message, or stores a part on a slow disk."""


class PayloadUpload:
    """The upload of one payload. Used once.

    Memory: one chunk, and of a stream the part that is not stored yet.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        topic_uid: int,
        source: Source,
        delivery_timeout_s: float,
        readers: Executor,
    ) -> None:
        """Prepare the upload; ``readers`` are the threads that read sources."""
        self._cluster = cluster
        self._timeout_s = delivery_timeout_s
        self._topic = topic
        self._topic_uid = topic_uid
        self._source = source
        self._readers = readers
        self._id = source.upload_id
        self._hash = hashlib.sha256()
        self._hashed = 0
        """Bytes of the payload that the hash covers: repeated parts are hashed once."""
        self._progress_s = asyncio.get_running_loop().time()
        """Loop time at which a part was stored, or the source yielded further bytes."""
        self._reading: asyncio.Future[bytes] | None = None
        """The last read of the source. A lost stream does not end it, and there must not be two at a time."""
        self._digests: dict[int, bytes] = {}
        """Digest of each part that a broker stored for this upload."""

    async def run(self) -> PayloadReference:
        """Upload the payload, and return its reference.

        Retries at other brokers until there was no progress for ``delivery_timeout_s``. A stream may take its time.

        Raises:
            InvalidArgument: If the payload cannot be read, has changed, or is above the limit of the brokers.
            NotFound: If the topic was deleted.
            SeaweedMQError: If no broker stores it in time: the last reason.
        """
        loop, config = asyncio.get_running_loop(), self._cluster.config

        def is_stuck() -> bool:
            return not self._is_waiting and loop.time() - self._progress_s > self._timeout_s

        try:
            async for attempt in retrying(config, self._cluster.env.rng, is_stuck):
                with attempt:
                    return await self._attempt(self._cluster.addresses()[0])
        finally:
            await asyncio.to_thread(self._source.close)
        raise AssertionError("retrying ended without a result")

    async def _attempt(self, address: str) -> PayloadReference:
        if self._is_waiting:  # A broker ends an upload that is silent.
            await self._until_read()
        stream = _UploadStream(self)
        async with broker_stream(
            self._cluster, address, lambda api: api.upload(stream.requests()), f"an upload to {self._topic}"
        ) as stream.broker:
            async for reply in stream.broker.replies:
                uri = stream.handle(reply)
                if uri is not None:
                    return PayloadReference(
                        uri=uri,
                        size_bytes=self._hashed,
                        content_type=self._source.content_type,
                        sha256=self._hash.digest(),
                        part_bytes=self._source.part_bytes if stream.parts > 1 else 0,
                    )
        raise Unavailable(f"broker {address} ended the upload to {self._topic}: retry")

    def opening(self) -> UploadOpen:
        """Return the first message of a stream."""
        return UploadOpen(
            topic=self._topic,
            topic_uid=self._topic_uid,
            upload_id=self._id,
            size_bytes=self._source.size_bytes,
        )

    def use_other_id(self) -> None:
        """Upload under an id of its own: under this one there is a complete payload with other content."""
        self._id = new_upload_id(self._cluster.env.rng)

    async def chunks(self, number: int, chunk_bytes: int) -> AsyncGenerator[bytes, None]:
        """Yield the bytes of a part, from the source."""
        begin = number * self._source.part_bytes
        position, end = begin, begin + self._source.part_bytes
        while position < end:
            length = min(chunk_bytes, end - position)
            data = await self._read_in_thread(position, length)
            if data:
                yield data
            position += len(data)
            if len(data) < length:
                return

    async def is_over(self, number: int) -> bool:
        """Whether the payload has no byte in a part or behind it. Part 0 is always there."""
        if not number or number in self._digests:
            return False
        return not await self._read_in_thread(number * self._source.part_bytes, 1)

    async def check(self) -> None:
        """Check that the payload did not change while it was read."""
        await asyncio.to_thread(self._source.check)

    def stored(self, number: int, digest: bytes) -> None:
        """Note that a part survives a crash."""
        self._source.stored(min((number + 1) * self._source.part_bytes, self._hashed))
        if number not in self._digests:  # Storing a part repeatedly does not count as progress.
            self._progress_s = asyncio.get_running_loop().time()
        self._digests[number] = digest

    def stored_digest(self, number: int) -> bytes | None:
        """Return the digest of a part that was stored for this upload; None if it was not."""
        return self._digests.get(number)

    @property
    def size_bytes(self) -> int:
        """Bytes read so far."""
        return self._hashed

    async def _read_in_thread(self, position: int, length: int) -> bytes:
        await self._until_read()
        before = self._hashed
        self._reading = asyncio.get_running_loop().run_in_executor(self._readers, self._read, position, length)
        self._reading.add_done_callback(lambda _: self._on_read(before))
        return await asyncio.shield(self._reading)

    @property
    def _is_waiting(self) -> bool:
        return self._source.may_wait and self._reading is not None and not self._reading.done()

    async def _until_read(self) -> None:
        if self._reading is not None and not self._reading.done():
            await asyncio.wait({self._reading})

    def _on_read(self, before: int) -> None:
        if self._hashed > before:  # Reading the same bytes repeatedly does not count as progress.
            self._progress_s = asyncio.get_running_loop().time()

    def _read(self, position: int, length: int) -> bytes:
        data = self._source.read(position, length)
        new = position + len(data) - self._hashed
        if data and new > 0:
            assert position <= self._hashed, "a payload is read without gaps"
            self._hash.update(memoryview(data)[len(data) - new :])
            self._hashed += new
        return data


class _UploadStream:
    """One stream of an upload, to one broker."""

    def __init__(self, upload: PayloadUpload) -> None:
        self._upload = upload
        self.broker: BrokerStream[UploadReply] | None = None
        self._found: dict[int, PartFound] = {}
        self._ready: UploadReady | None = None
        self._changed = asyncio.Event()
        self._stored = -1
        self.parts = 0
        """Number of parts sent or found to be there."""

    def handle(self, reply: UploadReply) -> str | None:
        """Handle a reply; return the uri if the payload is complete."""
        self._expect(STALL_S)
        if isinstance(reply, PartFound):
            self._found[reply.number] = reply
        elif isinstance(reply, UploadReady):
            self._ready = reply
        elif isinstance(reply, PartStored):
            self._stored = reply.number
        elif isinstance(reply, UploadDone):
            assert self._ready is not None, "a broker is ready before it is done"
            return self._ready.uri
        self._changed.set()
        return None

    async def requests(self) -> AsyncIterator[UploadRequest]:
        """Yield the messages of the client."""
        yield self._upload.opening()
        try:
            while self._ready is None:
                await self._wait()
            self._expect(None)  # The source may take its time.
            chunk_bytes = min(CHUNK_BYTES, self._ready.message_bytes_max)
            self.parts = 0
            while not await self._upload.is_over(self.parts):
                async with aclosing(self._part(self.parts, chunk_bytes)) as messages:
                    async for message in messages:
                        self._expect(STALL_S)
                        yield message
                        self._expect(None)
                self.parts += 1
            await self._upload.check()
            self._expect(STALL_S)
            yield UploadFinish(self.parts, self._upload.size_bytes)
        except SeaweedMQError as error:
            assert self.broker is not None, "the broker was ready"
            self.broker.end(error)
            await asyncio.Event().wait()  # until the stream is closed: its end would look like that of the client

    async def _part(self, number: int, chunk_bytes: int) -> AsyncGenerator[UploadRequest, None]:
        """Yield the messages of a part, none if the broker has it, and wait until it is stored."""
        assert self._ready is not None
        found = self._found.get(number)
        if found is not None and await self._is_equal(found, chunk_bytes):
            self._upload.stored(number, found.digest)
            return
        if self._ready.is_complete:
            self._upload.use_other_id()
            raise Unavailable("another payload was uploaded under this id: retry under another one")
        digest = xxh3_128()
        yield PartBegin(number)
        async with aclosing(self._upload.chunks(number, chunk_bytes)) as chunks:
            async for data in chunks:
                digest.update(data)
                yield PartData(data)
        yield PartEnd(digest.digest())
        while self._stored != number:
            self._expect(STALL_S)
            await self._wait()
        self._expect(None)
        self._upload.stored(number, digest.digest())

    async def _is_equal(self, found: PartFound, chunk_bytes: int) -> bool:
        """Whether a part of an earlier upload has the content of the source."""
        stored = self._upload.stored_digest(found.number)
        if stored is not None:
            return stored == found.digest
        digest, size_bytes = xxh3_128(), 0
        async with aclosing(self._upload.chunks(found.number, chunk_bytes)) as chunks:
            async for data in chunks:
                digest.update(data)
                size_bytes += len(data)
        return size_bytes == found.size_bytes and digest.digest() == found.digest

    async def _wait(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _expect(self, within_s: float | None) -> None:
        if self.broker is not None:
            self.broker.expect(within_s)
