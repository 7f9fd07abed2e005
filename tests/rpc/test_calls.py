"""Calls, streams, limits and errors between a client and a server in one process."""

import asyncio
from contextlib import aclosing, suppress
from dataclasses import replace

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from seaweedmq.errors import (
    AlreadyExists,
    Closed,
    DeadlineExceeded,
    Fenced,
    InvalidArgument,
    ResourceExhausted,
    StaleMetadata,
    Unavailable,
    Unsupported,
)
from seaweedmq.model.broker import BrokerLoad
from seaweedmq.model.config import MIB, BrokerConfig
from seaweedmq.model.messages import blobs as b
from seaweedmq.model.messages import calls
from seaweedmq.model.messages import groups as g
from seaweedmq.model.messages import replication as r
from seaweedmq.model.messages.calls import Call, GetClusterStatus, ListTopics
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES
from seaweedmq.model.messages.publish import FrameAck, PublishAck, PublishFrames, PublishReady
from seaweedmq.model.messages.subscribe import EARLIEST, LATEST, SubscribeOpen
from seaweedmq.rpc.client import GrpcDialer
from seaweedmq.rpc.methods import METHODS
from seaweedmq.rpc.server import serve
from seaweedmq.rpc.v1 import admin_pb2, types_pb2
from tests.rpc.any_value import some_value
from tests.rpc.fake_broker import ASSIGNMENT, CHUNK, NAME, OPEN, TOPIC, FakeBroker, answer_to, stream_of

SUBSCRIBE = SubscribeOpen(topic=NAME, segment=0, start=EARLIEST, credit_bytes=1)
LOAD = BrokerLoad(broker="b-1", cpu_share=0.5, memory_bytes=1, buffered_bytes=0)


async def publish_messages(*sizes):
    yield OPEN
    for size in sizes:
        yield PublishFrames(bytes(size))


async def subscribe_request():
    yield SUBSCRIBE
    await asyncio.Event().wait()


async def until(condition):
    async with asyncio.timeout(5):
        while not condition():  # noqa: ASYNC110  # the condition is the fake's plain state
            await asyncio.sleep(0.01)


# --- the calls ------------------------------------------------------------------------------------------------------
LATER = r.SegmentRef(topic=NAME, topic_uid=2**63 - 1, segment=3, epoch=2)


async def test_every_unary_call_reaches_the_broker_and_brings_its_answer(fake, broker):
    every = {kind for kind in vars(calls).values() if isinstance(kind, type) and issubclass(kind, Call)} - {Call}
    assert every == METHODS.keys()
    for kind in METHODS:
        request = some_value(kind)
        assert await broker.call(request) == answer_to(request), kind
        assert fake.calls.pop() == request


async def test_a_member_joins_commits_releases_and_leaves(fake, broker):
    said = [
        g.GroupOpen(
            group="billing", topic=NAME, member="m-1", incarnation=7, start=LATEST, client="host/1", held={0: 1}
        ),
        g.GroupCommit(1, (g.Position(segment=0, generation=1, offset=5, deliveries={7: 2}),)),
        g.GroupReleased({0: 1}),
        g.GroupLeave(),
    ]
    replies = [reply async for reply in broker.join_group(stream_of(*said))]
    assert replies == [ASSIGNMENT, g.GroupCommitted(1, {9: "segment 9 belongs to another member"})]
    assert fake.received == said
    assert fake.streams_open == 0
    fake.error = Fenced("member m-1 of group billing joined again elsewhere: choose another member id")
    with pytest.raises(Fenced, match="joined again elsewhere"):
        async for _ in broker.join_group(stream_of(*said)):
            pass


async def test_a_replicate_stream_carries_frames_one_way_and_what_is_held_the_other(fake, broker):
    opening = r.ReplicateOpen(ref=LATER, primary="b-1")
    said = opening, r.ReplicateFrames(bytes(10)), r.ReplicateFrames(bytes(LARGE_MESSAGE_BYTES))
    replies = [reply.end_offset async for reply in broker.replicate(stream_of(*said))]
    assert replies == [0, 10, 10 + LARGE_MESSAGE_BYTES]
    assert fake.received == [opening]
    assert fake.streams_open == 0
    fake.error = Fenced("shop/orders#3: epoch 2 is fenced by epoch 3")
    with pytest.raises(Fenced, match="fenced by epoch 3"):
        async for _ in broker.replicate(stream_of(*said)):
            pass


async def test_an_upload_stream_carries_parts_and_a_read_stream_a_range(fake, broker):
    opening = b.UploadOpen(topic=NAME, topic_uid=7, upload_id="0" * 32, size_bytes=2)
    said = opening, b.PartBegin(0), b.PartData(bytes(LARGE_MESSAGE_BYTES)), b.PartEnd(b"digest"), b.UploadFinish(1, 2)
    replies = [reply async for reply in broker.upload(stream_of(*said))]
    assert replies == [b.UploadReady("blobs/x", 9), b.PartStored(0), b.UploadDone()]
    assert fake.received == [*said]
    wanted = b.BlobRange(topic=NAME, topic_uid=7, uri="blobs/x", position=5, length=3)
    assert [reply.data async for reply in broker.read_blob(stream_of(wanted))] == [b"x"] * 3
    with pytest.raises(InvalidArgument, match="range of blobs/x was not requested"):
        await anext(broker.read_blob(stream_of(replace(wanted, position=-1))))


async def test_publish_open_ready_frames_acks_end(fake, broker):
    replies = [reply async for reply in broker.publish(publish_messages(10, 0, LARGE_MESSAGE_BYTES))]
    assert isinstance(replies[0], PublishReady)
    assert replies[1:] == [PublishAck((FrameAck(i, 1, i),)) for i in range(3)]
    assert fake.received == [OPEN, 10, 0, LARGE_MESSAGE_BYTES]
    assert fake.streams_open == 0


async def test_load_reports_stream_to_the_leader_until_it_is_deposed(fake, broker):
    pulled = asyncio.Event()

    async def reports_without_end():
        try:
            while True:
                yield LOAD
                await asyncio.sleep(0.01)
        finally:
            pulled.set()

    await broker.report_load(stream_of(LOAD))
    assert fake.received == [LOAD]
    fake.error = StaleMetadata("b-1 is not the leader: ask for the leader again")
    with pytest.raises(StaleMetadata, match="b-1 is not the leader"):
        await broker.report_load(reports_without_end())
    assert pulled.is_set()


# --- flow control and cancellation ----------------------------------------------------------------------------------
async def test_requests_are_pulled_only_as_the_broker_takes_them(fake, broker):
    fake.gate.clear()
    pulled = 0

    async def requests():
        nonlocal pulled
        yield OPEN
        for pulled in range(1, 101):  # noqa: B007  # 100 MiB in all
            yield PublishFrames(CHUNK)

    async with aclosing(broker.publish(requests())) as replies:
        await anext(replies)
        await asyncio.sleep(0.5)
        assert pulled < 30
        fake.gate.set()
        async for _ in replies:
            pass
    assert pulled == 100


async def test_a_slow_subscriber_holds_the_broker_back_and_a_cancelled_call_stays_cancelled(fake, broker):
    async with aclosing(broker.subscribe(subscribe_request())) as replies:
        await anext(replies)
        await asyncio.sleep(0.5)
        assert fake.sent < 30
    fake.gate.clear()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await broker.call(GetClusterStatus())


async def test_closing_the_replies_ends_both_sides(fake, broker):
    closed = asyncio.Event()

    async def requests():
        try:
            yield SUBSCRIBE
            await asyncio.Event().wait()
        finally:
            closed.set()

    replies = broker.subscribe(requests())
    await anext(replies)
    assert fake.streams_open == 1
    await replies.aclose()
    assert closed.is_set()
    await until(lambda: fake.streams_open == 0)


async def test_a_cancelled_task_sees_its_cancellation_and_ends_both_sides(fake, broker, caplog):
    async def read():
        async with aclosing(broker.subscribe(subscribe_request())) as replies:
            async for _ in replies:
                pass

    task = asyncio.create_task(read())
    await until(lambda: fake.sent > 3)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: fake.streams_open == 0)
    assert not caplog.records


async def test_a_stream_that_outlives_the_server_is_nobodys_error(dialer, caplog):
    """gRPC ends the handlers of a stopped server a moment after the server; a handler may read in between."""
    begun, stopped, outlived = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def silent():
        await stopped.wait()
        yield LOAD

    class Lingering(FakeBroker):
        async def report_load(self, reports, context):
            begun.set()
            while not stopped.is_set():
                with suppress(asyncio.CancelledError):
                    await stopped.wait()
            try:
                await anext(aiter(reports))
            finally:
                outlived.set()

    server = await serve(Lingering(), "127.0.0.1:0", BrokerConfig())
    call = asyncio.create_task(dialer.dial(server.address).report_load(silent()))
    await begun.wait()
    await server.stop(0)
    stopped.set()
    with pytest.raises(Unavailable):
        await call
    await outlived.wait()
    assert not caplog.records


async def test_a_refusal_under_a_flood_arrives_as_itself_and_after_all_replies_that_were_sent(fake, broker):
    """gRPC tends to lose the status of a call that ends while the client writes."""
    fake.error = StaleMetadata("b-1 does not own the segment: describe the topic again")
    for _ in range(30):
        with pytest.raises(StaleMetadata, match="does not own"):
            async for _ in broker.publish(publish_messages(*[MIB] * 20)):
                pass
    fake.error = Unavailable("draining: retry at another broker")
    replies = broker.publish(publish_messages(1))
    assert isinstance(await anext(replies), PublishReady)
    await asyncio.sleep(0.2)
    with pytest.raises(Unavailable, match="draining"):
        await anext(replies)


async def test_closing_the_dialer_ends_calls_with_closed(fake, server, dialer):
    broker = dialer.dial(server.address)
    fake.gate.clear()
    replies = broker.publish(publish_messages(1))
    await anext(replies)
    unary = asyncio.create_task(broker.call(GetClusterStatus()))
    stream = asyncio.create_task(anext(replies))
    await until(lambda: GetClusterStatus() in fake.calls)
    await dialer.close()
    for waiting in (unary, stream):
        with pytest.raises(Closed, match=server.address):
            await waiting
    with pytest.raises(Closed, match="create a new one"):
        await broker.call(ListTopics())
    with pytest.raises(Closed, match="create a new one"):
        await anext(broker.publish(publish_messages(1)))
    with pytest.raises(Closed):
        dialer.dial(server.address)
    await dialer.close()


# --- limits and refusals --------------------------------------------------------------------------------------------
ENVELOPE_HEAD_BYTES = 23
"""Overhead of one large message: tags, lengths and the channel of both layers."""


async def test_a_message_over_the_limit_is_the_callers_fault_and_names_the_limit(fake, broker):
    limit = LARGE_MESSAGE_BYTES + 64 * 1024
    with pytest.raises(
        InvalidArgument, match=f"{17 * MIB + ENVELOPE_HEAD_BYTES} bytes is over the limit of {limit} bytes"
    ):
        async for _ in broker.publish(publish_messages(17 * MIB)):
            pass
    assert await broker.call(ListTopics()) == (TOPIC,)


async def test_streams_are_bounded_and_unary_calls_go_on(fake, broker):
    streams = [broker.subscribe(subscribe_request()) for _ in range(8)]
    for stream in streams:
        await anext(stream)
    with pytest.raises(ResourceExhausted, match="8 streams, its limit"):
        await anext(broker.subscribe(subscribe_request()))
    assert await broker.call(ListTopics()) == (TOPIC,)
    for stream in streams:
        await stream.aclose()
    await until(lambda: fake.streams_open == 0)
    again = broker.subscribe(subscribe_request())
    await anext(again)
    await again.aclose()


async def test_a_call_that_takes_too_long_or_a_reply_over_the_clients_limit_says_so(fake, server):
    dialer = GrpcDialer(timeout_s=0.2)
    fake.gate.clear()
    with pytest.raises(DeadlineExceeded, match=rf"ClusterStatus at broker {server.address} .* 0\.2 s"):
        await dialer.dial(server.address).call(GetClusterStatus())
    await dialer.close()
    dialer = GrpcDialer(message_bytes_max=1000)
    with pytest.raises(InvalidArgument, match="limit of 1000 bytes of this client"):
        async for _ in dialer.dial(server.address).subscribe(subscribe_request()):
            pass
    await dialer.close()


@pytest.mark.parametrize(("version", "older"), [(2, "the {}"), (4, "this broker")])
async def test_another_protocol_version_is_refused_and_says_who_is_to_be_upgraded(server, version, older):
    dialer = GrpcDialer(protocol_version=version)
    broker = dialer.dial(server.address)

    def refused(caller):
        said = f"the {caller} speaks protocol {version}, this broker 3: upgrade {older.format(caller)}"
        return pytest.raises(Unsupported, match=said)

    with refused("client"):
        await broker.call(ListTopics())
    with refused("client"):
        await anext(broker.subscribe(subscribe_request()))
    with refused("client"):
        await anext(broker.publish(stream_of()))
    with refused("calling broker"):
        await anext(broker.replicate(stream_of()))
    with refused("calling broker"):
        await broker.forwarded.call(GetClusterStatus())
    await dialer.close()


async def test_a_broker_of_the_version_before_refuses_this_client_and_is_to_be_upgraded(fake, dialer):
    server = await serve(fake, "127.0.0.1:0", BrokerConfig(), protocol_version=2)
    with pytest.raises(Unsupported, match="the client speaks protocol 3, this broker 2: upgrade this broker"):
        await dialer.dial(server.address).call(ListTopics())
    await server.stop(0)


async def test_a_foreign_client_needs_no_metadata_and_finds_health_and_reflection(server):
    async with grpc.aio.insecure_channel(server.address) as channel:
        list_topics = channel.unary_unary(
            "/seaweedmq.v1.Admin/ListTopics",
            admin_pb2.ListTopicsRequest.SerializeToString,
            admin_pb2.ListTopicsReply.FromString,
        )
        reply = await list_topics(admin_pb2.ListTopicsRequest())
        assert reply.topics[0].name == "shop/orders"
        assert reply.topics[0].durability == types_pb2.DURABILITY_STORED
        health = await health_pb2_grpc.HealthStub(channel).Check(
            health_pb2.HealthCheckRequest(service="seaweedmq.v1.Data")
        )
        assert health.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        ask = reflection_pb2.ServerReflectionRequest(list_services="")
        async for listed in stub.ServerReflectionInfo(iter([ask])):
            names = {service.name for service in listed.list_services_response.service}
            assert {f"seaweedmq.v1.{name}" for name in ("Data", "Admin", "Cluster", "Groups")} <= names


async def test_bytes_that_are_no_request_are_refused_and_the_server_lives_on(server, broker):
    async with grpc.aio.insecure_channel(server.address) as channel:
        for path in ("Data/Publish", "Data/Subscribe"):
            call = channel.stream_stream(f"/seaweedmq.v1.{path}", None, None)(iter([b"\xff\xff\xff"]))
            with pytest.raises(grpc.aio.AioRpcError, match=r"are not a seaweedmq\.v1\.") as refused:
                async for _ in call:
                    pass
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert await broker.call(ListTopics()) == (TOPIC,)


# --- listening ------------------------------------------------------------------------------------------------------
async def test_a_port_in_use_is_refused_by_name(fake, server):
    with pytest.raises(AlreadyExists, match=f"port {server.port} at 127.0.0.1 is in use.*another port"):
        await serve(fake, server.address, BrokerConfig())


async def test_without_a_host_it_listens_on_this_machine_only(fake):
    server = await serve(fake, "0", BrokerConfig())
    assert server.address == f"127.0.0.1:{server.port}"
    await server.stop(0)
    await server.stop(0)
    again = await serve(fake, server.address, BrokerConfig())
    await again.stop(0)


@pytest.mark.parametrize(
    "listen", ["", "x:y", "1.2.3.4:99999", "a b:1", "::1", "[::1:5", "h/p:1", "192.0.2.1:1", "²:²"]
)
async def test_an_address_that_can_not_be_used_is_the_callers_fault(fake, listen):
    with pytest.raises(InvalidArgument, match="address"):
        await serve(fake, listen, BrokerConfig())


async def test_stopping_ends_streams_after_the_grace_and_clients_are_told_to_retry(fake, server, broker):
    replies = broker.subscribe(subscribe_request())
    await anext(replies)
    stopping = asyncio.create_task(server.stop(0.3))
    with pytest.raises(Unavailable, match=server.address):
        async for _ in replies:
            pass
    await stopping
    assert fake.streams_open == 0
    with pytest.raises(Unavailable, match=server.address):
        await broker.call(ListTopics())
