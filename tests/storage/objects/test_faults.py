"""The adapter through a proxy that injects faults, in front of a store of S3."""

import asyncio
import math
import socket

import pytest

from seaweedmq.errors import AlreadyExists, Conflict, StorageFailed
from seaweedmq.storage.objects.meter import RequestKind
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri
from tests.support.object_proxy import FaultKind, ObjectProxy, ProxiedRequest


async def content(objects: ObstoreObjects, key: str) -> bytes:
    return bytes((await objects.get(key)).content)


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [
        (FaultKind.STATUS, {"status": 500, "times": 2}),
        (FaultKind.STATUS, {"status": 503, "code": "SlowDown", "times": 3}),
        (FaultKind.STATUS, {"status": 409, "code": "ConditionalRequestConflict"}),
        (FaultKind.RESET, {"times": 2}),
    ],
)
async def test_every_request_is_retried_that_was_not_applied(
    objects: ObstoreObjects, proxy: ObjectProxy, kind: FaultKind, chosen: dict[str, object]
) -> None:
    async def through(call: object) -> object:
        proxy.inject(kind, **chosen)
        result = await call  # type: ignore[misc]
        assert proxy.faults.pop().times == 0, "the fault was injected"
        return result

    first = await through(objects.create("a", [b"1"]))
    await through(objects.replace("a", [b"2"], e_tag=str(first)))
    await through(objects.put("b", [b"3"]))
    assert await through(objects.get_changed("a", e_tag=str(first))) is not None
    assert bytes(await through(objects.get_range("a", 0, 1))) == b"2"  # type: ignore[arg-type]
    assert (await through(objects.head("a"))).size_bytes == 1  # type: ignore[attr-defined]
    assert [s.key for s in (await through(objects.list_folder())).objects] == ["a", "b"]  # type: ignore[attr-defined]
    await through(objects.delete(["a"]))
    assert await through(_listed(objects)) == ["b"]


async def _listed(objects: ObstoreObjects) -> list[str]:
    return [state.key async for page in objects.list() for state in page]


async def test_the_client_library_retries_nothing_itself(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.STATUS, status=403, code="AccessDenied", times=math.inf)
    calls = [objects.create("a", [b"1"]), objects.get("a"), objects.head("a"), objects.list_folder()]
    calls += [objects.delete(["a"]), objects.replace("a", [b"1"], e_tag='"x"')]  # type: ignore[list-item]
    for number, call in enumerate(calls, 1):
        with pytest.raises(StorageFailed, match="not permitted"):
            await call
        assert proxy.sent() == number
    proxy.heal()
    proxy.inject(FaultKind.RESET)
    await objects.create("a", [b"1"])
    assert proxy.sent("PUT") == 2 + 2, "one request, and one retry by the rule"


async def test_a_create_whose_answer_was_lost_finds_its_own_object(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.REPLY_LOST)
    with pytest.raises(AlreadyExists):
        await objects.create("a", [b"mine"])
    assert await content(objects, "a") == b"mine", "the caller compares"


async def test_a_replacement_whose_answer_was_lost_finds_its_own_version(
    objects: ObstoreObjects, proxy: ObjectProxy
) -> None:
    first = await objects.create("a", [b"1"])
    proxy.inject(FaultKind.REPLY_LOST)
    with pytest.raises(Conflict):
        await objects.replace("a", [b"mine"], e_tag=first)
    assert await content(objects, "a") == b"mine"


async def test_other_requests_whose_answer_was_lost_succeed(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.REPLY_LOST, method="PUT")
    await objects.put("a", [b"1"])
    proxy.inject(FaultKind.REPLY_LOST, method="GET")
    assert await content(objects, "a") == b"1"
    proxy.inject(FaultKind.REPLY_LOST, method="POST")
    await objects.delete(["a"])
    assert await _listed(objects) == []
    assert not [fault for fault in proxy.faults if fault.times]


@pytest.mark.parametrize("kind", [FaultKind.LATE, FaultKind.TWICE])
async def test_a_create_that_is_applied_late_changes_nothing(
    objects: ObstoreObjects, proxy: ObjectProxy, kind: FaultKind
) -> None:
    proxy.inject(kind)
    await objects.create("a", [b"1"])
    e_tag = (await objects.head("a")).e_tag
    await objects.replace("a", [b"2"], e_tag=e_tag)
    await proxy.release()
    assert await content(objects, "a") == b"2"
    proxy.inject(kind)
    await objects.replace("a", [b"3"], e_tag=(await objects.head("a")).e_tag)
    await objects.replace("a", [b"4"], e_tag=(await objects.head("a")).e_tag)
    await proxy.release()
    assert await content(objects, "a") == b"4"


async def test_a_request_without_answer_is_retried(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.HANG)
    await objects.create("a", [b"1"], timeout_s=1.5)
    proxy.inject(FaultKind.HANG)
    assert bytes((await objects.get("a", timeout_s=1.5)).content) == b"1"


async def test_a_store_that_never_answers_is_an_error_at_the_deadline(
    objects: ObstoreObjects, proxy: ObjectProxy
) -> None:
    proxy.inject(FaultKind.HANG, times=math.inf)
    loop = asyncio.get_running_loop()
    start = loop.time()
    with pytest.raises(StorageFailed, match=r"cannot create s3://.*/prefix/a: no answer; check the network.*0.6 s"):
        await objects.create("a", [b"1"], timeout_s=0.6)
    assert 0.5 < loop.time() - start < 10.0


async def test_a_short_body_is_read_again(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    await objects.create("a", [b"x" * 100_000])
    for call in (objects.get("a"), objects.get_range("a", 0, 100_000)):
        proxy.inject(FaultKind.SHORT_BODY, method="GET")
        found = await call
        assert (found if isinstance(found, memoryview) else found.content).nbytes == 100_000
        assert proxy.faults.pop().times == 0
    proxy.inject(FaultKind.SHORT_BODY, method="GET", times=math.inf)
    with pytest.raises(StorageFailed, match=r"cannot read s3://.*/prefix/a: no answer"):
        await objects.get("a", timeout_s=0.6)


async def test_expired_keys_are_named_at_once_and_writing_resumes(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.STATUS, status=400, code="ExpiredToken", times=math.inf)
    with pytest.raises(StorageFailed, match=r"the keys have expired .*renew them"):
        await objects.create("a", [b"1"])
    assert proxy.sent() == 1
    proxy.heal()
    await objects.create("a", [b"1"])


async def test_no_server_at_the_endpoint(objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as bound:  # bound, but not listening
        bound.bind(("127.0.0.1", 0))
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{bound.getsockname()[1]}")
        with pytest.raises(StorageFailed, match="no server listens at the endpoint; start it"):
            await ObstoreObjects(ObjectsUri.parse(objects.uri)).get("a", timeout_s=0.3)


async def test_a_part_is_retried(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    writer = objects.open_writer("a", part_bytes=5 << 20)
    proxy.inject(FaultKind.STATUS, status=500, contains="partNumber=2")
    proxy.inject(FaultKind.RESET, contains="partNumber=1")
    await writer.write(bytes(11 << 20))
    await writer.close()
    assert not [fault for fault in proxy.faults if fault.times]
    assert (await objects.head("a")).size_bytes == 11 << 20


async def test_an_object_whose_writer_fails_does_not_appear(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    writer = objects.open_writer("a", part_bytes=5 << 20)
    proxy.inject(FaultKind.STATUS, status=400, code="ExpiredToken", contains="partNumber=2", times=math.inf)
    with pytest.raises(StorageFailed, match=r"cannot write s3://.*/prefix/a: the keys have expired"):
        await _write_all(writer, 11 << 20)
    assert await _listed(objects) == []


async def _write_all(writer: object, size_bytes: int) -> None:
    await writer.write(bytes(size_bytes))  # type: ignore[attr-defined]
    await writer.close()  # type: ignore[attr-defined]


async def test_the_meter_counts_what_the_store_received(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    kinds = {"PUT": RequestKind.PUT, "HEAD": RequestKind.HEAD, "POST": RequestKind.DELETE}
    received = dict.fromkeys(RequestKind, 0)

    def note(request: ProxiedRequest) -> None:
        kind = kinds.get(request.method) or (RequestKind.LIST if "list-type" in request.path else RequestKind.GET)
        received[RequestKind.PUT if "upload" in request.path else kind] += 1

    proxy.on_request = note
    proxy.inject(FaultKind.STATUS, status=503)
    e_tag = await objects.create("a", [b"123"])
    await objects.replace("a", [b"4567"], e_tag=e_tag)
    await objects.get("a")
    await objects.get_range("a", 1, 3)
    await objects.head("a")
    await _listed(objects)
    await objects.list_folder("none")
    await objects.sign("GET", "a", expires_s=60)
    await objects.delete(["a", "b"])
    counts = objects.meter.counts()
    assert counts.requests == received
    assert (counts.written_bytes, counts.read_bytes) == (3 + 3 + 4, 4 + 2)
    for size_bytes in (0, 1, 5 << 20, 12 << 20):
        await _write_all(objects.open_writer("b", part_bytes=5 << 20), size_bytes)
        assert objects.meter.counts().requests == received, f"{size_bytes} bytes in parts"
