"""Every error that etcd, or a foreign server, can return becomes an error kind that ends no broker."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
import pytest
from aetcd import rpc

from seaweedmq.coordination import etcd
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.etcd_answers import meaning_of
from seaweedmq.coordination.waiting import end_watch
from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, ResourceExhausted, SeaweedMQError, Unavailable
from seaweedmq.ports import MetaStore, Put

REFUSALS: dict[tuple[str, str], type[SeaweedMQError]] = {
    ("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded"): ResourceExhausted,
    ("RESOURCE_EXHAUSTED", "etcdserver: too many requests"): ResourceExhausted,
    ("RESOURCE_EXHAUSTED", "grpc: received message larger than max (2 vs. 1)"): InvalidArgument,
    ("RESOURCE_EXHAUSTED", "another limit"): ResourceExhausted,
    ("INVALID_ARGUMENT", "etcdserver: request is too large"): InvalidArgument,
    ("INVALID_ARGUMENT", "etcdserver: too many operations in txn request"): InvalidArgument,
    ("INVALID_ARGUMENT", "etcdserver: duplicate key given in txn request"): InvalidArgument,
    ("INVALID_ARGUMENT", "etcdserver: user name is empty"): Unavailable,
    ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old"): Unavailable,
    ("UNAUTHENTICATED", "etcdserver: invalid auth token"): Unavailable,
    ("PERMISSION_DENIED", "etcdserver: permission denied"): Unavailable,
    ("FAILED_PRECONDITION", "etcdserver: authentication is not enabled"): Unavailable,
    ("FAILED_PRECONDITION", "etcdserver: lease already exists"): Unavailable,
    ("NOT_FOUND", "etcdserver: requested lease not found"): LeaseEnded,
    ("NOT_FOUND", "etcdserver: member not found"): Unavailable,
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted"): OutOfRange,
    ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision"): OutOfRange,
    ("OUT_OF_RANGE", "etcdserver: too large lease TTL"): InvalidArgument,
    ("DATA_LOSS", "etcdserver: corrupt cluster"): Unavailable,
    ("UNIMPLEMENTED", "unknown service etcdserverpb.KV"): Unavailable,
    ("UNAVAILABLE", "etcdserver: no leader"): Unavailable,
    ("UNAVAILABLE", "etcdserver: leader changed"): Unavailable,
    ("UNAVAILABLE", "etcdserver: request timed out"): Unavailable,
    ("UNAVAILABLE", "etcdserver: unhealthy cluster"): Unavailable,
    ("UNKNOWN", "anything"): Unavailable,
    ("INTERNAL", "anything"): Unavailable,
    ("ABORTED", "anything"): Unavailable,
    ("CANCELLED", "anything"): Unavailable,
    ("ALREADY_EXISTS", "anything"): Unavailable,
    ("DEADLINE_EXCEEDED", "anything"): Unavailable,
}

CALLS: dict[str, Callable[[MetaStore], Awaitable[Any]]] = {
    "get": lambda store: store.get("/k"),
    "list": lambda store: store.list("/k"),
    "transact": lambda store: store.transact([], [Put("/k", b"")]),
    "watch": lambda store: anext(store.watch("/k", 1)),
    "grant_lease": lambda store: store.grant_lease(1),
    "renew_lease": lambda store: store.renew_lease(1),
    "revoke_lease": lambda store: store.revoke_lease(1),
}


def test_a_refusal_means_what_its_callers_can_act_upon() -> None:
    assert {status for status, _ in REFUSALS} == {status.name for status in grpc.StatusCode} - {"OK"}
    for (status, message), kind in REFUSALS.items():
        meaning = meaning_of(status, message)
        assert meaning.kind is kind, (status, message)
        assert meaning.remedy, (status, message)
    remedy = meaning_of("RESOURCE_EXHAUSTED", "etcdserver: mvcc: database space exceeded").remedy
    for part in ("--quota-backend-bytes", "compact", "defragment", "disarm"):
        assert part in remedy


@dataclass(slots=True)
class Answers:
    """Answer of a scripted server to every call: a status and its message, or bytes that etcd never sends."""

    refusal: tuple[str, str] | None = None
    reply: bytes = b""


@contextlib.asynccontextmanager
async def scripted() -> AsyncIterator[tuple[str, Answers]]:
    """A gRPC server in the place of etcd. A real one cannot be made to return most of its statuses."""
    answers = Answers()

    async def answer(context: Any) -> bytes:
        if answers.refusal is not None:
            status, message = answers.refusal
            await context.abort(grpc.StatusCode[status], message)
        return answers.reply

    async def unary(_: bytes, context: Any) -> bytes:
        return await answer(context)

    async def stream(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        await anext(requests)
        yield await answer(context)

    class Everything(grpc.GenericRpcHandler):  # type: ignore[type-arg] # generic in the stubs only
        def service(self, call: grpc.HandlerCallDetails) -> Any:
            if call.method.endswith(("/Watch", "/LeaseKeepAlive")):
                return grpc.stream_stream_rpc_method_handler(stream)
            return grpc.unary_unary_rpc_method_handler(unary)

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Everything(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield f"127.0.0.1:{port}", answers
    finally:
        await server.stop(None)


@pytest.mark.parametrize("call", CALLS)
async def test_each_refusal_of_each_call_reaches_its_caller(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "ATTEMPTS_MIN", 1)
    async with scripted() as (endpoint, answers):
        store = EtcdMetaStore(endpoint, timeout_s=5.0, rng=random.Random(1))
        for refusal, kind in REFUSALS.items():
            answers.refusal = refusal
            if kind is LeaseEnded and call in ("renew_lease", "revoke_lease"):
                assert not await CALLS[call](store), "the requested change has happened already"
                continue
            if kind is OutOfRange and call == "list":
                kind = Unavailable  # it repeats the listing, a few times
            with pytest.raises(SeaweedMQError) as raised:
                await CALLS[call](store)
            assert isinstance(raised.value, kind), (refusal, raised.value)
        await store.close()


@pytest.mark.parametrize("call", ["get", "list", "transact", "watch", "grant_lease", "renew_lease"])
@pytest.mark.parametrize("reply", [b"", b"\xff\xff\xff"], ids=["empty", "garbled"])
async def test_an_answer_of_no_etcd_is_an_outage(call: str, reply: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty listing would mean that all topics are gone."""
    monkeypatch.setattr(etcd, "ATTEMPTS_MIN", 1)
    async with scripted() as (endpoint, answers):
        answers.reply = reply
        store = EtcdMetaStore(endpoint, timeout_s=1.0, rng=random.Random(1))
        if (call, reply) == ("renew_lease", b""):
            assert await store.renew_lease(1) == 0, "the default of the field, which etcd uses for an expired lease"
        else:
            with pytest.raises(Unavailable):
                await CALLS[call](store)
        await store.close()


async def test_a_page_without_keys_and_more_to_come_is_no_listing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd, "ATTEMPTS_MIN", 1)
    async with scripted() as (endpoint, answers):
        page = rpc.RangeResponse(more=True)
        page.header.revision = 7
        answers.reply = page.SerializeToString()
        store = EtcdMetaStore(endpoint, timeout_s=1.0, rng=random.Random(1))
        async with asyncio.timeout(5):
            with pytest.raises(Unavailable, match=r"unreadable answer.*a page without keys"):
                await store.list("/k")
        await store.close()


async def test_a_watch_that_etcd_ends_leaves_no_task_behind() -> None:
    """gRPC reads the requests of a watch in a separate task, which outlives the call."""
    async with scripted() as (endpoint, answers):
        answers.refusal = ("UNAVAILABLE", "etcdserver: no leader")
        store = EtcdMetaStore(endpoint, timeout_s=1.0, rng=random.Random(1))
        before = asyncio.all_tasks()
        for _ in range(3):
            watch = store.watch("/k", 1)
            with pytest.raises(Unavailable):
                await anext(watch)
            await end_watch(watch)
        await store.close()
        await asyncio.sleep(0)
        left = [task for task in asyncio.all_tasks() - before if "_consume_request_iterator" in repr(task)]
        assert not left
