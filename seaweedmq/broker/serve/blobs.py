"""Native listener of payloads by reference: uploads part by part, and reads of ranges.

Any broker serves every payload, since all are in the shared storage. A broker holds no payload: an upload holds one
message at a time, a read one chunk.
"""

import asyncio
import datetime
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from functools import partial

from xxhash import xxh3_128

from seaweedmq.broker.memory.broker_memory import BrokerMemory
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.intake import Intake
from seaweedmq.broker.memory.sending import Sending
from seaweedmq.broker.serve.describe import Descriptions
from seaweedmq.codec.paths import blob_name, parse_blob
from seaweedmq.errors import (
    DeadlineExceeded,
    InvalidArgument,
    ProtocolViolation,
    ResourceExhausted,
    Unavailable,
)
from seaweedmq.model.config import DAY_S, US_PER_S, BrokerConfig
from seaweedmq.model.messages.blobs import (
    DATA_BYTES_MAX,
    PART_BYTES_MAX,
    PARTS_MAX,
    BlobData,
    BlobRange,
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
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import BlobStore, PartWriter, StoredBlob

SILENCE_S_MAX = 60.0
"""Longest silence in seconds of a client in an upload. Beyond it the stream ends; the client resumes with another."""


class BlobService:
    """The server side of all uploads and reads of payloads."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        descriptions: Descriptions,
        store: BlobStore,
        memory: BrokerMemory,
        check_space: Callable[[TopicName], None],
        wall_us: Callable[[], int],
    ) -> None:
        """Create the service; ``check_space`` raises StorageFull while storage has no room for a topic."""
        self._config = config
        self._descriptions = descriptions
        self._store = store
        self._memory = memory
        self._sending = Sending(memory.sending, memory.logs)
        self._check_space = check_space
        self._wall_us = wall_us
        self._uploads = 0

    async def upload(self, requests: AsyncIterator[UploadRequest], context: CallContext) -> AsyncIterator[UploadReply]:
        """Serve one upload: see ``model.messages.blobs``.

        Raises:
            NotFound: If the topic does not exist, has another uid, or is deleted meanwhile.
            ResourceExhausted: If ``uploads_max`` uploads are under way.
            StorageFull: If the storage has no room, or fills up meanwhile.
            InvalidArgument: If the payload or a part is above its limit, or the parts do not make a payload.
            Unavailable: If a part does not have the digest that the client states.
            DeadlineExceeded: If the client is silent for ``SILENCE_S_MAX``.
            ProtocolViolation: If the messages do not follow each other as stated there.
        """
        opening = await anext(requests, None)
        if not isinstance(opening, UploadOpen) or not opening.topic_uid:
            raise ProtocolViolation("upload does not begin with UploadOpen for a topic's uid: send that first")
        await self._check_room(opening)
        self._check_size(opening.size_bytes)
        async with self._counted():
            with closing(Intake(self._memory.intake)) as intake:
                upload = _Upload(
                    opening,
                    intake.message_bytes_max,
                    self._store,
                    self._memory.reading,
                    self._check_size,
                    partial(self._check_room, opening),
                    self._wall_us(),
                )
                async with aclosing(upload.serve(requests)) as replies:
                    async for reply in replies:
                        yield reply

    async def read(self, requests: AsyncIterator[BlobRange], context: CallContext) -> AsyncIterator[BlobData]:
        """Serve one read of a range.

        Raises:
            NotFound: If the topic does not exist or has another uid, or the payload is missing.
            InvalidArgument: If the uri does not name a payload of this topic.
            ProtocolViolation: If no range is requested.
        """
        wanted = await anext(requests, None)
        if not isinstance(wanted, BlobRange) or not wanted.topic_uid:
            raise ProtocolViolation("read of a payload does not begin with a range of a topic's uid: send that first")
        await self._descriptions.check_topic(wanted.topic, wanted.topic_uid)
        name = parse_blob(wanted.uri)
        if name is None or (name.topic, name.uid) != (wanted.topic, wanted.topic_uid):
            raise InvalidArgument(
                f"{wanted.uri[:200]!r} is not a payload of topic {wanted.topic}: a record may refer only to payloads "
                "of its own topic"
            )
        position, end = wanted.position, wanted.position + wanted.length
        while position < end:
            length = min(DATA_BYTES_MAX, end - position)
            held = await self._sending.take(length)
            with self._sending.writing(held):
                data = await self._store.read_blob(wanted.uri, position, length)
                if data:
                    yield BlobData(data)
                position += len(data)
                if len(data) < length:
                    return
                del data

    @asynccontextmanager
    async def _counted(self) -> AsyncIterator[None]:
        if self._uploads >= self._config.uploads_max:
            raise ResourceExhausted(
                f"this broker serves {self._uploads} uploads, its limit: retry, use more brokers, or raise uploads_max"
            )
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    async def _check_room(self, opening: UploadOpen) -> None:
        """Raise NotFound if the topic was deleted, and StorageFull if the storage has no room for it."""
        await self._descriptions.check_topic(opening.topic, opening.topic_uid)
        self._check_space(opening.topic)

    def _check_size(self, size_bytes: int) -> None:
        most = self._config.payload_bytes_max
        if size_bytes > most:
            raise InvalidArgument(
                f"payload of {size_bytes} bytes is above the limit of {most}: split it, or raise payload_bytes_max on "
                "every broker"
            )


class _Upload:
    """One upload stream."""

    def __init__(
        self,
        opening: UploadOpen,
        message_bytes_max: int,
        store: BlobStore,
        reading: MemoryBudget,
        check_size: Callable[[int], None],
        check_room: Callable[[], Awaitable[None]],
        now_us: int,
    ) -> None:
        self._opening = opening
        self._message_bytes_max = message_bytes_max
        self._store = store
        self._reading = reading
        self._check_size = check_size
        self._check_room = check_room
        self._now_us = now_us
        self._sizes: dict[int, int] = {}
        """Size in bytes of each part that is there."""

    async def serve(self, requests: AsyncIterator[UploadRequest]) -> AsyncGenerator[UploadReply, None]:
        opening = self._opening
        # Not of earlier days: the sweep may delete those.
        days = (_day(self._now_us), _day(self._now_us - DAY_S * US_PER_S))
        blob = await self._store.find_blob(opening.topic, opening.topic_uid, opening.upload_id, days)
        if blob is None:
            name = blob_name(opening.topic, opening.topic_uid, days[0], opening.upload_id)
            blob = StoredBlob(uri=name.uri, parts=(), is_complete=False)
        async with aclosing(self._found(blob)) as found:
            async for part in found:
                yield part
        yield UploadReady(blob.uri, self._message_bytes_max, blob.is_complete)
        while (request := await _next(requests)) is not None:
            if isinstance(request, UploadFinish):
                await self._store.complete_blob(blob.uri, request.parts, request.size_bytes)
                yield UploadDone()
                return
            if not isinstance(request, PartBegin):
                raise ProtocolViolation(f"{type(request).__name__} outside of a part: send PartBegin first")
            if blob.is_complete:
                raise ProtocolViolation(f"upload {opening.upload_id} is complete: use another id for other content")
            yield await self._store_part(blob.uri, request.number, requests)

    async def _found(self, blob: StoredBlob) -> AsyncGenerator[PartFound, None]:
        """Yield the parts that are there with their digests, which are computed from the storage."""
        for number, size_bytes in blob.parts:
            digest = xxh3_128()
            for position in range(0, size_bytes, DATA_BYTES_MAX):
                async with self._reading.holding(DATA_BYTES_MAX):
                    digest.update(await self._store.read_part(blob, number, position, DATA_BYTES_MAX))
            self._sizes[number] = size_bytes
            yield PartFound(number, size_bytes, digest.digest())

    async def _store_part(self, uri: str, number: int, requests: AsyncIterator[UploadRequest]) -> PartStored:
        if number >= PARTS_MAX:
            raise InvalidArgument(f"part {number} is above the limit of {PARTS_MAX} parts: send larger ones")
        await self._check_room()  # Again: an upload takes hours, and would use what is reserved for records.
        part = await self._store.create_part(uri, number)
        try:
            await self._receive(part, number, requests)
            await part.keep()
        finally:
            await part.close()
        return PartStored(number)

    async def _receive(self, part: PartWriter, number: int, requests: AsyncIterator[UploadRequest]) -> None:
        digest, size_bytes = xxh3_128(), 0
        others_bytes = sum(size for other, size in self._sizes.items() if other != number)
        while not isinstance(request := await _next(requests), PartEnd):
            if not isinstance(request, PartData):
                raise ProtocolViolation(f"part {number} ended without PartEnd: send all of it")
            if len(request.data) > self._message_bytes_max:
                raise ProtocolViolation(
                    f"message with {len(request.data)} bytes of a part is above the stream's limit of "
                    f"{self._message_bytes_max}: send smaller ones"
                )
            size_bytes += len(request.data)
            if size_bytes > PART_BYTES_MAX:
                raise InvalidArgument(f"part {number} is above the limit of {PART_BYTES_MAX} bytes: send more parts")
            self._check_size(others_bytes + size_bytes)
            digest.update(request.data)
            await part.append(request.data)
        if digest.digest() != request.digest:
            raise Unavailable(f"part {number} of upload {self._opening.upload_id} was damaged on its way: retry")
        self._sizes[number] = size_bytes


async def _next(requests: AsyncIterator[UploadRequest]) -> UploadRequest | None:
    """Return the next message; None at the end of the stream. DeadlineExceeded is raised after ``SILENCE_S_MAX``."""
    try:
        async with asyncio.timeout(SILENCE_S_MAX):
            return await anext(requests, None)
    except TimeoutError:
        raise DeadlineExceeded(
            f"upload was silent for {SILENCE_S_MAX:g} s: resume it with another stream and the same id"
        ) from None


def _day(time_us: int) -> str:
    return datetime.datetime.fromtimestamp(time_us / US_PER_S, datetime.UTC).date().isoformat()
