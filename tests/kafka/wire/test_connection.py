"""Connections as clients see them: replies in order, within limits; malformed requests end the connection."""

import asyncio
import gc
import logging
import struct
from collections.abc import Awaitable

import pytest

from seaweedmq.errors import StaleMetadata
from seaweedmq.kafka.dispatch import RequestScheduler
from seaweedmq.kafka.wire.connection import Connection
from seaweedmq.kafka.wire.messages import (
    API,
    ApiVersionsRequest,
    EncodedReply,
    FetchResponse,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceResponse,
    Reply,
    Request,
)
from seaweedmq.model.kafka.codes import Code
from seaweedmq.model.messages.call_context import CallContext, ListenerKind
from tests.kafka.wire.script import (
    TIMEOUT_S,
    Gate,
    appends,
    beat,
    fetch,
    framed,
    heartbeat,
    join,
    listening,
    polls,
    produce,
    script,
    until,
)


async def nothing_known(request: Request) -> Reply:
    return MetadataResponse(brokers=[], topics=[])


def produced(request: Request, offset: int = 0) -> Reply:
    topic = request.body.topic_data[0]
    topics = ProduceResponse.TopicProduceResponse
    partition = topics.PartitionProduceResponse(
        version=request.version, index=topic.partition_data[0].index, error_code=0, base_offset=offset
    )
    return ProduceResponse(
        version=request.version,
        responses=[topics(version=request.version, name=topic.name, partition_responses=[partition])],
    )


async def test_replies_are_in_the_order_of_the_requests_however_long_each_takes() -> None:
    committed, slow_fetch = asyncio.Event(), Gate(FetchResponse(error_code=0, responses=[]))

    async def slow_produce(request: Request) -> Reply:
        await committed.wait()
        return produced(request)

    handlers = {API.PRODUCE: appends(slow_produce), API.FETCH: slow_fetch, API.HEARTBEAT: beat}
    async with listening(handlers) as (_, port), script(port) as client:
        client.ask(1, API.FETCH, 12, fetch())
        client.ask(2, API.PRODUCE, 9, produce())
        client.ask(3, API.HEARTBEAT, 4, heartbeat())
        committed.set()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.05)
        slow_fetch.opens.set()
        await client.hears((1, API.FETCH, 12), (2, API.PRODUCE, 9), (3, API.HEARTBEAT, 4))


async def test_a_heartbeat_counts_while_a_fetch_and_a_join_wait() -> None:
    waits, beaten = Gate(), Gate(HeartbeatResponse(error_code=0))
    beaten.opens.set()
    handlers = {API.FETCH: waits, API.JOIN_GROUP: waits, API.HEARTBEAT: beaten}
    async with listening(handlers, grace_s=0.1) as (server, port), script(port) as client:
        client.ask(1, API.JOIN_GROUP, 5, join())
        client.ask(2, API.FETCH, 12, fetch())
        client.ask(3, API.HEARTBEAT, 4, heartbeat())
        await until(lambda: beaten.began == 1)
        await until(lambda: server.requests == 2)


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_a_request_that_waits_for_long_hears_what_comes_behind_it(is_at_once: bool) -> None:
    handlers = {API.FETCH: polls, API.PRODUCE: stored, API.HEARTBEAT: beat}
    async with listening(handlers, grace_s=0.1) as (_, port), script(port) as client:
        client.ask(1, API.FETCH, 12, fetch())
        client.ask(2, API.FETCH, 12, fetch())
        client.ask(3, API.PRODUCE, 9, produce(records=b""))
        if not is_at_once:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.reader.read(1), 0.05)
        client.ask(4, API.HEARTBEAT, 4, heartbeat())
        client.ask(5, API.FETCH, 12, fetch())
        await client.hears((1, API.FETCH, 12), (2, API.FETCH, 12), (3, API.PRODUCE, 9), (4, API.HEARTBEAT, 4))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(client.reader.read(1), 0.05)


async def test_what_is_known_at_once_takes_no_task_and_what_comes_later_keeps_its_turn() -> None:
    told = list[asyncio.Future[Reply]]()

    def beat_later(request: Request) -> asyncio.Future[Reply]:
        told.append(asyncio.get_running_loop().create_future())
        if request.body.group_id == "at once":
            told[-1].set_result(HeartbeatResponse(error_code=0))
        return told[-1]

    handlers = {API.HEARTBEAT: beat_later, API.METADATA: nothing_known}
    async with listening(handlers) as (server, port), script(port) as client:
        client.ask(1, API.HEARTBEAT, 4, heartbeat("at once"))
        assert (await client.hear(API.HEARTBEAT, 4))[0] == 1
        client.ask(2, API.HEARTBEAT, 4, heartbeat())
        client.ask(3, API.METADATA, 13, MetadataRequest(version=13, topics=None))
        client.ask(4, API.HEARTBEAT, 4, heartbeat("at once"))
        await until(lambda: len(told) == 2)
        assert server.requests == 0, "neither has a task, and the third did not begin"
        told[1].set_exception(StaleMetadata("it is elsewhere"))
        number, reply = await client.hear(API.HEARTBEAT, 4)
        assert (number, reply.error_code) == (2, Code.NOT_COORDINATOR)
        await client.hears((3, API.METADATA, 13), (4, API.HEARTBEAT, 4))


async def test_a_future_is_not_waited_for_when_the_client_is_gone() -> None:
    told = list[asyncio.Future[Reply]]()

    def never(request: Request) -> asyncio.Future[Reply]:
        told.append(asyncio.get_running_loop().create_future())
        return told[-1]

    async with listening({API.HEARTBEAT: never}) as (server, port):
        async with script(port) as client:
            client.ask(1, API.HEARTBEAT, 4, heartbeat())
            client.ask(2, API.HEARTBEAT, 4, heartbeat())
            await until(lambda: len(told) == 1)
        await until(told[0].cancelled)
        await until(lambda: server.connections == 0)
        await until(lambda: server.in_flight.taken_bytes == 0)
    assert len(told) == 1, "the second one never began"


async def test_appends_are_in_order_and_wait_for_no_commit() -> None:
    appended = list[bytes]()
    all_appended = asyncio.Event()

    async def produce_one(request: Request) -> Awaitable[Reply]:
        records = bytes(request.body.topic_data[0].partition_data[0].records)
        if records == b"0":
            await asyncio.sleep(0.05)  # without an order of appends, the others would be first
        appended.append(records)
        offset = len(appended)
        if offset == 5:
            all_appended.set()

        async def committed() -> Reply:
            await all_appended.wait()
            return produced(request, offset)

        return committed()

    async with listening({API.PRODUCE: produce_one}) as (_, port), script(port) as client:
        for i in range(5):
            client.ask(i, API.PRODUCE, 9, produce(records=b"%d" % i))
        offsets = []
        for i in range(5):
            number, reply = await client.hear(API.PRODUCE, 9)
            assert number == i
            offsets.append(reply.responses[0].partition_responses[0].base_offset)
        assert appended == [b"0", b"1", b"2", b"3", b"4"]
        assert offsets == [1, 2, 3, 4, 5]


async def test_a_handler_that_fails_is_answered_in_its_place(caplog: pytest.LogCaptureFixture) -> None:
    async def moved(request: Request) -> Awaitable[Reply]:
        raise StaleMetadata("the segment is elsewhere")

    async def broken(request: Request) -> Reply:
        raise ZeroDivisionError("a bug")

    handlers = {API.PRODUCE: moved, API.METADATA: broken, API.HEARTBEAT: beat}
    async with listening(handlers) as (_, port), script(port) as client:
        client.ask(1, API.PRODUCE, 9, produce(topic="orders", index=3))
        client.ask(2, API.METADATA, 13, MetadataRequest(version=13, topics=None))
        client.ask(3, API.HEARTBEAT, 4, heartbeat())
        _, refused = await client.hear(API.PRODUCE, 9)
        one = refused.responses[0].partition_responses[0]
        assert (refused.responses[0].name, one.index) == ("orders", 3)
        assert (one.error_code, one.error_message) == (Code.NOT_LEADER_OR_FOLLOWER, "the segment is elsewhere")
        number, failed = await client.hear(API.METADATA, 13)
        assert (number, failed.error_code) == (2, Code.UNKNOWN_SERVER_ERROR)
        assert (await client.hear(API.HEARTBEAT, 4))[0] == 3
    assert "ZeroDivisionError" in caplog.text


async def test_a_commit_that_fails_is_answered_and_an_answer_that_can_not_be_written_too() -> None:
    async def fails_late(request: Request) -> Reply:
        raise StaleMetadata("closed meanwhile")

    async def unwritable(request: Request) -> Reply:
        return HeartbeatResponse(error_code="no number")

    silent = Gate()
    silent.opens.set()
    handlers = {API.PRODUCE: appends(fails_late), API.HEARTBEAT: unwritable, API.METADATA: silent}
    async with listening(handlers) as (_, port), script(port) as client:
        client.ask(1, API.PRODUCE, 9, produce())
        client.ask(2, API.HEARTBEAT, 4, heartbeat())
        client.ask(3, API.METADATA, 13, MetadataRequest(version=13, topics=None))
        _, late = await client.hear(API.PRODUCE, 9)
        assert late.responses[0].partition_responses[0].error_code == Code.NOT_LEADER_OR_FOLLOWER
        assert (await client.hear(API.HEARTBEAT, 4))[1].error_code == Code.UNKNOWN_SERVER_ERROR
        assert (await client.hear(API.METADATA, 13))[1].error_code == Code.UNKNOWN_SERVER_ERROR


async def test_who_wants_no_answer_gets_none_and_a_failure_ends_the_connection() -> None:
    async def nothing(request: Request) -> Reply:
        if bytes(request.body.topic_data[0].partition_data[0].records) == b"bad":
            raise StaleMetadata("elsewhere")
        return None

    handlers = {API.PRODUCE: appends(nothing), API.HEARTBEAT: beat}
    async with listening(handlers) as (_, port), script(port) as client:
        client.ask(1, API.PRODUCE, 9, produce(acks=0))
        client.ask(2, API.HEARTBEAT, 4, heartbeat())
        assert (await client.hear(API.HEARTBEAT, 4))[0] == 2
        client.ask(3, API.PRODUCE, 9, produce(acks=0, records=b"bad"))
        assert await client.is_closed()


async def test_an_api_without_handler_and_old_produce_requests_are_answered_unsupported() -> None:
    async with listening({}) as (_, port), script(port) as client:
        client.ask(1, API.METADATA, 13, MetadataRequest(version=13, topics=None))
        client.ask(2, API.PRODUCE, 2, produce(version=2))
        assert (await client.hear(API.METADATA, 13))[1].error_code == Code.UNSUPPORTED_VERSION
        number, old = await client.hear(API.PRODUCE, 2)
        assert (number, old.responses[0].partition_responses[0].error_code) == (2, Code.UNSUPPORTED_VERSION)


async def test_requests_come_in_any_pieces() -> None:
    async with listening({API.HEARTBEAT: beat, API.PRODUCE: stored}) as (_, port), script(port) as client:
        data = b"".join(framed(i, API.HEARTBEAT, 4, heartbeat(), None) for i in range(3))
        for i in range(len(data)):
            client.say(data[i : i + 1])
            await client.writer.drain()
            if i % 7 == 0:
                await asyncio.sleep(0.001)
        for i in range(3):
            assert (await client.hear(API.HEARTBEAT, 4))[0] == i
        big = b"".join(framed(i, API.PRODUCE, 9, produce(records=bytes([i]) * (300_000 * i))) for i in range(5))
        client.say(big + framed(9, API.HEARTBEAT, 4, heartbeat()))
        for i in range(5):
            number, reply = await client.hear(API.PRODUCE, 9)
            assert (number, reply.responses[0].partition_responses[0].base_offset) == (i, 300_000 * i)
        assert (await client.hear(API.HEARTBEAT, 4))[0] == 9


async def _stored(request: Request) -> Reply:
    """Reply with the length of the records, after reading them."""
    records = request.body.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    size = len(records)
    assert size == 0 or bytes(records) == bytes([records[0]]) * size
    return produced(request, size)


stored = appends(_stored)


async def test_of_one_connection_only_so_many_requests_are_read() -> None:
    waits = Gate(FetchResponse(error_code=0, responses=[]))
    async with listening({API.FETCH: waits}, kafka_requests_per_connection_max=3) as (_, port), script(port) as client:
        for i in range(20):
            client.ask(i, API.FETCH, 12, fetch())
        await until(lambda: waits.began >= 3)
        await asyncio.sleep(0.05)
        assert waits.began == 3
        waits.opens.set()
        await client.hears(*((i, API.FETCH, 12) for i in range(20)))
        assert waits.began == 20


async def test_a_connection_that_waits_for_bytes_and_hangs_up_is_forgotten() -> None:
    commits = asyncio.Event()

    async def committed(request: Request) -> Reply:
        await commits.wait()
        return produced(request)

    handlers = {API.PRODUCE: appends(committed)}
    async with listening(handlers, in_flight_bytes_max=10_000) as (server, port), script(port) as first:
        first.ask(1, API.PRODUCE, 9, produce(records=b"x" * 9_000))
        async with script(port) as second:
            await until(lambda: bool(server.in_flight.taken_bytes))
            second.ask(1, API.PRODUCE, 9, produce(records=b"x" * 9_000))
            await until(lambda: bool(server.in_flight.waiting))
        # The waiting connection does not read, so it notices the client's end only once it continues.
        commits.set()
        await first.hears((1, API.PRODUCE, 9))
        await until(lambda: server.connections <= 1)


async def test_a_request_as_large_as_may_be_is_answered_and_one_byte_more_ends_its_connection(
    caplog: pytest.LogCaptureFixture,
) -> None:
    largest = 1 << 20
    around = len(framed(1, API.PRODUCE, 9, produce(records=b"x" * 1_000_000))) - 4 - 1_000_000
    async with listening({API.PRODUCE: stored}, kafka_request_bytes_max=largest) as (_, port), script(port) as client:
        client.ask(1, API.PRODUCE, 9, produce(records=b"x" * (largest - around)))
        assert (await client.hear(API.PRODUCE, 9))[0] == 1
        client.ask(2, API.PRODUCE, 9, produce(records=b"x" * (largest - around + 1)))
        assert await client.is_closed()
    assert "a request of 1,048,577 bytes, above kafka_request_bytes_max = 1,048,576" in caplog.text


async def test_half_a_request_and_silence_ends_the_connection(caplog: pytest.LogCaptureFixture) -> None:
    async with listening({}, kafka_request_read_s=0.1) as (_, port):
        for half in (b"\0", framed(1, API.HEARTBEAT, 4, heartbeat())[:-1]):
            async with script(port) as client:
                client.say(half)
                assert await client.is_closed()
    assert caplog.text.count("no bytes of a request") == 2


async def test_an_idle_connection_is_closed_and_one_that_waits_for_an_answer_is_not() -> None:
    limits, waits = {"kafka_connection_idle_s": 0.1}, Gate(FetchResponse(error_code=0, responses=[]))
    async with listening({API.FETCH: waits}, **limits) as (_, port), script(port) as busy, script(port) as idle:
        busy.ask(1, API.FETCH, 12, fetch())
        assert await idle.is_closed()
        await asyncio.sleep(0.15)
        waits.opens.set()
        await busy.hears((1, API.FETCH, 12))
        assert await busy.is_closed()


async def test_a_client_that_never_reads_holds_no_more_than_its_socket_and_is_closed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    payload = memoryview(bytes(4 * 1024 * 1024))
    sent = 0
    made = 0

    async def large(request: Request) -> Reply:
        def gone() -> None:
            nonlocal sent
            sent += 1

        nonlocal made
        made += 1
        return EncodedReply([payload], gone)

    limits = {"kafka_request_read_s": 0.3, "kafka_requests_per_connection_max": 8}
    async with listening({API.FETCH: large}, **limits) as (_, port), script(port, buffer_bytes=1_024) as client:
        for i in range(20):
            client.ask(i, API.FETCH, 12, fetch())
        while "read none" not in caplog.text:
            await asyncio.sleep(0.01)
            assert made <= 12
    assert sent == made


async def test_a_slow_reader_is_waited_for() -> None:
    payload = bytes(8 * 1024 * 1024)

    async def large(request: Request) -> Reply:
        return EncodedReply([payload])

    limits = {"kafka_request_read_s": 0.8}
    async with listening({API.FETCH: large}, **limits) as (_, port), script(port, buffer_bytes=65_536) as client:
        client.ask(1, API.FETCH, 12, fetch())
        left = len(payload) + 9
        while left:
            left -= len(await client.reader.read(min(left, 500_000)))
            await asyncio.sleep(0.08)


@pytest.mark.parametrize("count", [1, 5])
async def test_what_was_asked_before_the_client_ended_its_half_is_answered(count: int) -> None:
    async def slow(request: Request) -> Reply:
        await asyncio.sleep(0.05)
        return HeartbeatResponse(error_code=0)

    async with listening({API.HEARTBEAT: slow}) as (server, port), script(port) as client:
        for number in range(count):
            client.ask(number, API.HEARTBEAT, 4, heartbeat())
        client.say(framed(9, API.HEARTBEAT, 4, heartbeat())[:-1])
        client.writer.write_eof()
        for number in range(count):
            assert (await client.hear(API.HEARTBEAT, 4))[0] == number
        assert await client.is_closed()
        await until(lambda: server.in_flight.taken_bytes == 0)


async def test_of_a_client_that_ended_its_half_requests_that_wait_are_not_waited_for() -> None:
    """A Fetch is answered, and a JoinGroup ends with its connection within seconds."""
    async with listening({API.FETCH: polls, API.JOIN_GROUP: Gate()}) as (server, port):
        async with script(port) as client:
            client.ask(1, API.FETCH, 12, fetch())
            client.writer.write_eof()
            await client.hears((1, API.FETCH, 12))
            assert await client.is_closed()
        async with script(port) as client:
            client.ask(1, API.JOIN_GROUP, 5, join())
            client.writer.write_eof()
            assert await client.is_closed()
            await until(lambda: server.requests == 0)


async def test_text_that_is_not_utf_8_is_read_with_replacement_characters() -> None:
    seen = []

    async def note(request: Request) -> Reply:
        seen.append((request.context.client_id, request.body.topics[0].name))
        return MetadataResponse(brokers=[], topics=[])

    async with listening({API.METADATA: note}) as (_, port), script(port) as client:
        client.say(struct.pack(">ihhih3s", 21, API.METADATA, 1, 1, 3, b"f\xe9e") + b"\0\0\0\1\0\2\xff\xfe")
        assert (await client.hear(API.METADATA, 1))[0] == 1
    assert seen == [("f\ufffde", "\ufffd\ufffd")]


async def test_requests_share_the_context_of_their_connection_while_the_client_id_is_the_same() -> None:
    seen: list[CallContext] = []

    async def note(request: Request) -> Reply:
        seen.append(request.context)
        return MetadataResponse(brokers=[], topics=[])

    async with listening({API.METADATA: note}) as (_, port), script(port) as client:
        for number, client_id in enumerate(("a", "a", "b", "b" * 30_000, "b" * 30_000)):
            client.ask(number, API.METADATA, 1, MetadataRequest(version=1, topics=[]), client_id)
            await client.hear(API.METADATA, 1)
        host, client_port = client.writer.get_extra_info("sockname")
    assert [(context.peer, context.listener) for context in seen] == [(f"{host}:{client_port}", ListenerKind.KAFKA)] * 5
    assert [len(context.client_id) for context in seen] == [1, 1, 1, 30_000, 30_000]
    assert seen[0] is seen[1]
    assert seen[3] is not seen[4], "no connection holds on to a long name"


GARBAGE = (
    (struct.pack(">i", -1), "below the 10 of its header"), (struct.pack(">i", 0), "below the 10 of its header"),
    (struct.pack(">i", 2**31 - 1), "above kafka_request_bytes_max"),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "TLS"), (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "gRPC"),
    (struct.pack(">ihhih", 10, 77, 0, 1, -1), "API 77 version 0 is not advertised"),
    (struct.pack(">ihhih", 10, -1, 0, 1, -1), "API -1 version 0 is not advertised"),
    (struct.pack(">ihhih", 10, API.METADATA, 99, 1, -1), "Metadata version 99 is not advertised"),
    (struct.pack(">ihhih", 10, API.FETCH, 3, 1, -1), "Fetch version 3 is not advertised"),
    (struct.pack(">ihhih", 10, API.METADATA, 0, 1, 500), "a client id of 500 bytes"),
    (struct.pack(">ihhihi", 14, API.METADATA, 0, 1, -1, 2**31 - 1), "topics has 2,147,483,647 elements"),
    (struct.pack(">ihhihi", 14, API.METADATA, 0, 1, -1, -2), "topics has -2 elements"),
    (struct.pack(">ihhih", 16, API.METADATA, 9, 1, -1) + b"\0\xff\xff\xff\xff\x07", "elements in"),
    (struct.pack(">ihhih", 17, API.METADATA, 9, 1, -1) + b"\0\xff\xff\xff\xff\xff\x01", "longer than 5 bytes"),
    (struct.pack(">ihhih", 15, API.METADATA, 9, 1, -1) + b"\xff\xff\xff\xff\x07", "tagged fields"),
)  # fmt: skip


async def test_garbage_ends_its_connection_with_one_line_and_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    for garbage, why in GARBAGE:
        caplog.clear()
        async with listening({API.HEARTBEAT: beat}) as (_, port), script(port) as other:
            async with script(port) as client:
                client.say(garbage)
                assert await client.is_closed(), why
            other.ask(1, API.HEARTBEAT, 4, heartbeat())
            await other.hears((1, API.HEARTBEAT, 4))
        lines = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(lines) == 1, (why, lines)
        assert why in lines[0]


async def test_a_client_from_the_future_is_told_the_versions_in_the_first_layout() -> None:
    seen = []

    async def versions(request: Request) -> Reply:
        from seaweedmq.kafka.gateway import versions_reply

        seen.append(request)
        return versions_reply(request)

    async with listening({API.API_VERSIONS: versions}) as (_, port), script(port) as client:
        client.say(struct.pack(">ihhih", 25, API.API_VERSIONS, 99, 7, -1) + b"\0\x0bfrom a new world"[:15])
        number, reply = await client.hear(API.API_VERSIONS, 0)
        assert (number, reply.error_code) == (7, Code.UNSUPPORTED_VERSION)
        body = ApiVersionsRequest(version=4, client_software_name="x", client_software_version="1")
        client.ask(8, API.API_VERSIONS, 4, body)
        number, reply = await client.hear(API.API_VERSIONS, 4)
        assert (number, reply.error_code) == (8, 0)
        assert {one.api_key for one in reply.api_keys} == set(API)
    assert seen[0].body is None


async def test_connections_beyond_the_limit_are_refused(caplog: pytest.LogCaptureFixture) -> None:
    async with listening({API.HEARTBEAT: beat}, kafka_connections_max=2) as (server, port):
        async with script(port) as one, script(port):
            one.ask(1, API.HEARTBEAT, 4, heartbeat())
            assert (await one.hear(API.HEARTBEAT, 4))[0] == 1
            for _ in range(3):
                async with script(port) as refused:
                    assert await refused.is_closed()
            assert server.connections == 2
        await until(lambda: server.connections == 0)
        async with script(port) as again:
            again.ask(1, API.HEARTBEAT, 4, heartbeat())
            assert (await again.hear(API.HEARTBEAT, 4))[0] == 1
    assert caplog.text.count("connections rejected") == 1


async def test_what_a_connection_held_is_free_when_it_is_gone_and_not_when_garbage_is_collected() -> None:
    async with listening({API.HEARTBEAT: beat}) as (server, port):
        gc.collect()
        gc.disable()
        try:
            async with script(port) as client, script(port):
                client.ask(1, API.HEARTBEAT, 4, heartbeat())
                assert (await client.hear(API.HEARTBEAT, 4))[0] == 1
                await until(lambda: server.connections == 2)
            await until(lambda: server.connections == 0)
            await until(lambda: not [one for one in gc.get_objects() if isinstance(one, Connection | RequestScheduler)])
        finally:
            gc.enable()


async def test_a_client_that_is_gone_cancels_what_waits_but_not_an_append() -> None:
    cancelled = asyncio.Event()
    appending = asyncio.Event()
    go_on = asyncio.Event()
    appended = list[int]()

    async def polls(request: Request) -> Reply:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def appends(request: Request) -> Awaitable[Reply]:
        appending.set()
        await go_on.wait()
        appended.append(request.correlation_id)

        async def committed() -> Reply:
            return produced(request)

        return committed()

    async with listening({API.FETCH: polls, API.PRODUCE: appends}) as (server, port):
        async with script(port) as client:
            client.ask(1, API.FETCH, 12, fetch())
            client.ask(2, API.PRODUCE, 9, produce())
            client.ask(3, API.PRODUCE, 9, produce())
            async with asyncio.timeout(TIMEOUT_S):
                await appending.wait()
        async with asyncio.timeout(TIMEOUT_S):
            await cancelled.wait()
        assert server.in_flight.taken_bytes > 0
        go_on.set()
        await until(lambda: server.requests == 0)
        assert appended == [2]
        assert server.in_flight.taken_bytes == 0


async def test_a_stop_answers_what_was_read_and_does_not_wait_for_ever() -> None:
    waits, never = Gate(MetadataResponse(brokers=[], topics=[])), Gate()
    async with listening({API.METADATA: waits}) as (server, port), script(port) as client, script(port) as idle:
        client.ask(1, API.METADATA, 9, MetadataRequest(version=9, topics=None))
        client.say(b"\0\0")
        await until(lambda: waits.began == 1)
        stopping = asyncio.create_task(server.stop(5.0))
        assert await idle.is_closed()
        waits.opens.set()
        await client.hears((1, API.METADATA, 9))
        assert await client.is_closed()
        await stopping
    async with listening({API.FETCH: never}) as (server, port), script(port) as client:
        client.ask(1, API.FETCH, 12, fetch())
        await until(lambda: bool(server.requests))
        await server.stop(0.05)
        assert await client.is_closed()
