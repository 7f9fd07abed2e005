"""Uploads and reads of payloads by reference, at a whole broker with real sockets and files."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest
import pytest_asyncio
from xxhash import xxh3_128_digest

from seaweedmq.broker.serve import blobs as service
from seaweedmq.codec.paths import parse_blob
from seaweedmq.errors import (
    DeadlineExceeded,
    InvalidArgument,
    NotFound,
    ProtocolViolation,
    ResourceExhausted,
    SeaweedMQError,
    StorageFailed,
    Unavailable,
)
from seaweedmq.model.config import KIB, MIB, BrokerConfig
from seaweedmq.model.messages.blobs import (
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
from seaweedmq.model.messages.calls import CreateTopic, DeleteTopic
from seaweedmq.model.topic import TopicName, TopicSpec
from seaweedmq.ports import BrokerApi, StorageSpace
from seaweedmq.rpc.client import GrpcDialer
from tests.support.insides import Insides
from tests.support.whole_broker import WholeBroker, whole_broker

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAME, OTHER = TopicName("shop", "films"), TopicName("shop", "songs")
CONFIG = BrokerConfig(uploads_max=2, payload_bytes_max=1 * MIB, memory_bytes_max=4096 * MIB)  # with that of other tests
ID = "0123456789abcdef" * 2


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def whole(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[WholeBroker]:
    async with whole_broker(tmp_path_factory.mktemp("storage"), CONFIG) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="module")
async def api(whole: WholeBroker) -> AsyncIterator[BrokerApi]:
    dialer = GrpcDialer()
    yield dialer.dial(whole.address)
    await dialer.close()


@pytest_asyncio.fixture(loop_scope="module")
async def opening(api: BrokerApi) -> AsyncIterator[UploadOpen]:
    """The first message of an upload to a topic of its own."""
    uid = (await api.call(CreateTopic(TopicSpec(name=NAME)))).topic.uid
    yield UploadOpen(topic=NAME, topic_uid=uid, upload_id=ID, size_bytes=0)
    await api.call(DeleteTopic(NAME))


def part(number: int, *data: bytes) -> Sequence[UploadRequest]:
    return PartBegin(number), *map(PartData, data), PartEnd(xxh3_128_digest(b"".join(data)))


async def upload(api: BrokerApi, *requests: UploadRequest) -> list[UploadReply]:
    async def said() -> AsyncIterator[UploadRequest]:
        for request in requests:
            yield request

    return [reply async for reply in api.upload(said())]


async def read(api: BrokerApi, opening: UploadOpen, uri: str, position: int, length: int) -> bytes:
    wanted = BlobRange(topic=opening.topic, topic_uid=opening.topic_uid, uri=uri, position=position, length=length)

    async def said() -> AsyncIterator[BlobRange]:
        yield wanted

    return b"".join([reply.data async for reply in api.read_blob(said())])


def uri_of(replies: Sequence[UploadReply]) -> str:
    return next(reply.uri for reply in replies if isinstance(reply, UploadReady))


async def test_a_payload_is_uploaded_in_parts_and_read_in_ranges(api: BrokerApi, opening: UploadOpen) -> None:
    replies = await upload(api, opening, *part(0, b"fo", b"ur"), *part(1, b"3"), UploadFinish(2, 5))
    assert [type(reply) for reply in replies] == [UploadReady, PartStored, PartStored, UploadDone]
    name = parse_blob(uri_of(replies))
    assert name is not None
    assert (name.topic, name.uid, name.id) == (NAME, opening.topic_uid, ID)
    assert await read(api, opening, name.uri, 0, 99) == b"four3"
    assert await read(api, opening, name.uri, 3, 1) == b"r"
    assert await read(api, opening, name.uri, 5, 9) == b""


async def test_a_large_range_comes_in_messages(api: BrokerApi, opening: UploadOpen) -> None:
    data = bytes(range(256)) * 4 * KIB
    chunks = [data[at : at + 64 * KIB] for at in range(0, len(data), 64 * KIB)]
    replies = await upload(api, opening, *part(0, *chunks), UploadFinish(1, len(data)))
    assert await read(api, opening, uri_of(replies), 1, len(data)) == data[1:]


async def test_an_interrupted_upload_is_resumed(api: BrokerApi, opening: UploadOpen) -> None:
    with pytest.raises(ProtocolViolation, match="part 1 ended without PartEnd"):
        await upload(api, opening, *part(0, b"four"), *part(1, b"lost")[:-1])
    replies = await upload(api, opening, *part(1, b"3"), UploadFinish(2, 5))
    assert replies[0] == PartFound(0, 4, xxh3_128_digest(b"four"))
    assert await read(api, opening, uri_of(replies), 0, 99) == b"four3"
    found = await upload(api, opening, UploadFinish(2, 5))
    assert [type(reply) for reply in found] == [PartFound, PartFound, UploadReady, UploadDone]
    assert isinstance(found[2], UploadReady)
    assert found[2].is_complete


async def test_a_part_replaces_one_that_differs(api: BrokerApi, opening: UploadOpen) -> None:
    await upload(api, opening, *part(0, b"old"))
    replies = await upload(api, opening, *part(0, b"newer"), UploadFinish(1, 5))
    assert await read(api, opening, uri_of(replies), 0, 99) == b"newer"


async def test_an_empty_payload(api: BrokerApi, opening: UploadOpen) -> None:
    replies = await upload(api, opening, *part(0), UploadFinish(1, 0))
    assert await read(api, opening, uri_of(replies), 0, 9) == b""


@pytest.mark.parametrize(
    ("requests", "kind", "why"),
    [
        ((UploadFinish(1, 0),), Unavailable, "is gone, swept or deleted: retry with all parts"),
        ((*part(1, b"x"), UploadFinish(2, 2)), InvalidArgument, "lacks parts: 1 of 2"),
        ((*part(0, b"x"), UploadFinish(1, 2)), InvalidArgument, "not 2: send it again"),
        ((PartBegin(0), PartData(b"x"), PartEnd(bytes(16))), Unavailable, "damaged on its way: retry"),
        ((PartData(b"x"),), ProtocolViolation, "PartData outside of a part"),
        ((PartBegin(0), UploadFinish(1, 0)), ProtocolViolation, "part 0 ended without PartEnd"),
        ((PartBegin(10_000),), InvalidArgument, "above the limit of 10000 parts"),
        (
            part(0, *[bytes(MIB)] * 2),
            InvalidArgument,
            "above the limit of 1048576: split it, or raise payload_bytes_max",
        ),
    ],
)
async def test_what_is_no_upload_is_one_error(
    api: BrokerApi, opening: UploadOpen, requests: Sequence[UploadRequest], kind: type[SeaweedMQError], why: str
) -> None:
    with pytest.raises(kind, match=why):
        await upload(api, opening, *requests)
    replies = await upload(api, opening, *part(0, b"x"), UploadFinish(1, 1))
    assert await read(api, opening, uri_of(replies), 0, 9) == b"x"


@pytest.mark.parametrize(
    ("change", "kind", "why"),
    [
        ({"topic_uid": 0}, ProtocolViolation, "does not begin with UploadOpen for a topic's uid"),
        ({"topic_uid": 5}, NotFound, "created again|recreated"),
        ({"topic": OTHER}, NotFound, "there is no topic shop/songs"),
        ({"upload_id": "../../x"}, InvalidArgument, "use 32 hexadecimal digits"),
        ({"size_bytes": 2 * MIB}, InvalidArgument, "raise payload_bytes_max"),
    ],
)
async def test_an_upload_to_nowhere_is_one_error(
    api: BrokerApi, opening: UploadOpen, change: dict[str, object], kind: type[SeaweedMQError], why: str
) -> None:
    with pytest.raises(kind, match=why):
        await upload(api, replace(opening, **change), *part(0, b"x"))  # type: ignore[arg-type]


async def test_a_payload_is_read_only_as_one_of_its_topic(api: BrokerApi, opening: UploadOpen) -> None:
    uri = uri_of(await upload(api, opening, *part(0, b"x"), UploadFinish(1, 1)))
    uid = (await api.call(CreateTopic(TopicSpec(name=OTHER)))).topic.uid
    try:
        elsewhere = UploadOpen(topic=OTHER, topic_uid=uid, upload_id=ID, size_bytes=0)
        for foreign in (uri, "cluster.json", f"{uri}/../{ID}", "../x"):
            with pytest.raises(InvalidArgument, match="is not a payload of topic shop/songs"):
                await read(api, elsewhere, foreign, 0, 1)
        with pytest.raises(NotFound, match="is missing in"):
            await read(api, elsewhere, uri.replace("films", "songs").replace(str(opening.topic_uid), str(uid)), 0, 1)
    finally:
        await api.call(DeleteTopic(OTHER))


async def test_uploads_at_once_are_limited(api: BrokerApi, opening: UploadOpen) -> None:
    async def waiting(index: int) -> AsyncIterator[UploadRequest]:
        yield replace(opening, upload_id=f"{index:032x}")
        await asyncio.Event().wait()

    open_ones = [api.upload(waiting(index)) for index in range(CONFIG.uploads_max)]
    for each in open_ones:
        assert isinstance(await anext(each), UploadReady)
    with pytest.raises(ResourceExhausted, match="serves 2 uploads, its limit: retry"):
        await upload(api, opening)
    for each in open_ones:
        await each.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(10):
        while True:
            try:
                await upload(api, opening, *part(0, b"x"))
            except ResourceExhausted:
                await asyncio.sleep(0.01)
            else:
                return


async def test_a_silent_client_ends(api: BrokerApi, opening: UploadOpen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SILENCE_S_MAX", 0.05)

    async def silent() -> AsyncIterator[UploadRequest]:
        yield opening
        yield PartBegin(0)
        await asyncio.Event().wait()

    with pytest.raises(DeadlineExceeded, match=r"silent for 0\.05 s: resume it"):
        async for _ in api.upload(silent()):
            pass


async def test_a_full_storage_takes_no_upload(whole: WholeBroker, api: BrokerApi, opening: UploadOpen) -> None:
    guard = whole.broker.storage_space
    guard.measured(StorageSpace(0, 1_000_000 * MIB))
    try:
        with pytest.raises(StorageFailed, match="storage_free_bytes_min"):
            await upload(api, opening)
    finally:
        guard.measured(StorageSpace(1_000_000 * MIB, 1_000_000 * MIB))
    await upload(api, opening, *part(0, b"x"))


async def test_a_storage_that_fills_up_takes_no_further_part(
    whole: WholeBroker, api: BrokerApi, opening: UploadOpen
) -> None:
    guard = whole.broker.storage_space
    is_stored = asyncio.Event()

    async def filling() -> AsyncIterator[UploadRequest]:
        for request in (opening, *part(0, b"four")):
            yield request
        await is_stored.wait()
        guard.measured(StorageSpace(0, 1_000_000 * MIB))
        for request in (*part(1, b"3"), UploadFinish(2, 5)):
            yield request

    replies = api.upload(filling())
    try:
        assert [type(await anext(replies)) for _ in range(2)] == [UploadReady, PartStored]
        is_stored.set()
        with pytest.raises(StorageFailed, match="storage_free_bytes_min"):
            await anext(replies)
    finally:
        guard.measured(StorageSpace(1_000_000 * MIB, 1_000_000 * MIB))
    found = await upload(api, opening, *part(1, b"3"), UploadFinish(2, 5))
    assert found[0] == PartFound(0, 4, xxh3_128_digest(b"four")), "what was stored stays"


async def test_memory_of_ended_streams_is_free_again(whole: WholeBroker, api: BrokerApi, opening: UploadOpen) -> None:
    uri = uri_of(await upload(api, opening, *part(0, b"x"), UploadFinish(1, 1)))
    await read(api, opening, uri, 0, 1)
    memory = Insides(whole.broker).memory
    async with asyncio.timeout(10):
        while any(budget.used for budget in (memory.intake, memory.sending, memory.reading)):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
