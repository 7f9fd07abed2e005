"""Large requests and replies are decoded and encoded in steps, with the same values and bytes as at once."""

import asyncio
import struct
from typing import Any

import pytest

from seaweedmq.kafka.wire import encoding as encoding_module
from seaweedmq.kafka.wire.decoding import decoding
from seaweedmq.kafka.wire.encoding import encoding, is_large
from seaweedmq.kafka.wire.frames import ADMIN_ELEMENTS_MAX
from seaweedmq.kafka.wire.message_cursor import ELEMENTS_A_STEP, Malformed
from seaweedmq.kafka.wire.messages import (
    API,
    REPLIES,
    REQUESTS,
    DescribeGroupsResponse,
    Line,
    MetadataRequest,
    MetadataResponse,
    Reply,
    Request,
)
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from tests.kafka.wire import oracle
from tests.kafka.wire.script import beat, heartbeat, listening, script, until
from tests.kafka.wire.test_codec import made
from tests.support.kafka_wire import read_request

CONTEXT = CallContext(listener=ListenerKind.KAFKA, peer="127.0.0.1:1")


def test_replies_are_written_in_steps_to_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding_module, "ELEMENTS_A_STEP", 2)
    for api, version in oracle.all_versions():
        for _, data in made(api, version, "response"):
            found = REPLIES[api].decode(data, version=version)
            assert b"".join(encoding(found, version)) == data, (api, version)


def test_a_reply_is_large_by_the_elements_of_all_its_arrays() -> None:
    def metadata(topics: int, partitions: int) -> Any:
        make = MetadataResponse.MetadataResponseTopic
        of_one = [make.MetadataResponsePartition(partition_index=n) for n in range(partitions)]
        return MetadataResponse(brokers=[], topics=[make(name="t", partitions=of_one) for _ in range(topics)])

    assert not is_large(metadata(topics=10, partitions=40))
    assert is_large(metadata(topics=10, partitions=60))
    assert is_large(metadata(topics=1, partitions=600))
    assert is_large(metadata(topics=600, partitions=0))


@pytest.mark.parametrize(
    ("api", "version", "fields"),
    [
        (API.METADATA, 1, {"topics": [MetadataRequest.MetadataRequestTopic(name="t")] * 1_000}),
        (API.DESCRIBE_GROUPS, 5, {"groups": ["g"] * 1_000, "include_authorized_operations": False}),
    ],
)
def test_no_step_reads_more_than_some_elements(api: API, version: int, fields: dict[str, Any]) -> None:
    data = bytes(REQUESTS[api](version=version, **fields).encode())
    steps = sum(1 for _ in decoding(REQUESTS[api], version, memoryview(data)))
    assert steps == 1_000 // ELEMENTS_A_STEP


def test_a_request_about_too_many_topics_is_refused() -> None:
    topics = b"".join(struct.pack(">h", 6) + b"%06d" % n + struct.pack(">ihii", 1, 1, 0, 0) for n in range(20_000))
    head = struct.pack(">hhih", API.CREATE_TOPICS, 1, 1, -1) + struct.pack(">i", 20_000)
    with pytest.raises(Malformed, match=f"more than {ADMIN_ELEMENTS_MAX:,} elements in one request: send several"):
        read_request(memoryview(head + topics), context=CONTEXT, connection=1, line=Line())


async def test_others_are_answered_while_a_large_request_is_read_and_its_reply_written() -> None:
    count, answered = 90_000, list[int]()

    async def metadata(request: Request) -> Reply:
        make, topics = MetadataResponse.MetadataResponseTopic, []
        for topic in request.body.topics:
            topics.append(make(name=topic.name, partitions=[]))
            await request.turn.pause()
        return MetadataResponse(brokers=[], topics=topics)

    async with (
        listening({API.METADATA: metadata, API.HEARTBEAT: beat}) as (_, port),
        script(port) as large,
        script(port) as other,
    ):
        name = struct.pack(">h1s", 1, b"t")
        body = struct.pack(">hhih", API.METADATA, 1, 1, -1) + struct.pack(">i", count) + name * count
        large.say(struct.pack(">i", len(body)) + body)
        large.ask(2, API.HEARTBEAT, 4, heartbeat())
        reply = asyncio.create_task(large.hear(API.METADATA, 1))
        while not reply.done():
            other.ask(len(answered), API.HEARTBEAT, 4, heartbeat())
            answered.append((await other.hear(API.HEARTBEAT, 4))[0])
        number, found = await reply
        assert (number, len(found.topics)) == (1, count)
        assert (await large.hear(API.HEARTBEAT, 4))[0] == 2, "what comes behind it is read afterwards"
    assert len(answered) > 20, "each turn is short, and the whole takes hundreds of milliseconds"


async def test_a_client_that_leaves_while_its_request_is_read_leaves_nothing_behind() -> None:
    async with listening({API.METADATA: beat}) as (server, port):
        async with script(port) as peer:
            body = struct.pack(">hhihi", API.METADATA, 1, 1, -1, 90_000) + struct.pack(">h1s", 1, b"t") * 90_000
            peer.say(struct.pack(">i", len(body)) + body)
            await peer.writer.drain()
        await until(lambda: not server.connections and not server.in_flight.taken_bytes)


async def test_a_large_request_that_fails_is_answered_whole() -> None:
    async def fail(request: Request) -> Reply:
        raise TimeoutError

    async with listening({API.DESCRIBE_GROUPS: fail}) as (_, port), script(port) as peer:
        fields = {"groups": ["group"] * 5_000, "include_authorized_operations": False}
        peer.ask(1, API.DESCRIBE_GROUPS, 5, REQUESTS[API.DESCRIBE_GROUPS](version=5, **fields))
        _, found = await peer.hear(API.DESCRIBE_GROUPS, 5)
    assert isinstance(found, DescribeGroupsResponse)
    assert len(found.groups) == 5_000
