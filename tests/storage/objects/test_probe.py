"""The probe at the start: each rejection with its remedy."""

import math
import random

import pytest

from seaweedmq.errors import StorageFailed
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.probe import probe
from seaweedmq.storage.objects.uri import ObjectsUri
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects, ObjectAnswer, ObjectOp, ObjectRequest
from tests.support.object_proxy import FaultKind, ObjectProxy


async def check_rejected(objects: ObstoreObjects | MemoryObjects, reason: str) -> None:
    with pytest.raises(StorageFailed, match=reason):
        await probe(objects, random.Random(1), timeout_s=1.5)


async def test_a_missing_bucket(proxy: ObjectProxy) -> None:
    await check_rejected(ObstoreObjects(ObjectsUri.parse("s3://no-bucket/p")), "bucket does not exist.*create it")


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (301, "PermanentRedirect", "in another region.*set AWS_REGION"),
        (403, "AccessDenied", "not permitted.*permit reading, writing, listing and deleting"),
        (403, "RequestTimeTooSkewed", "clock of this machine differs.*synchronize"),
        (400, "ExpiredToken", "keys have expired.*renew"),
        (503, "SlowDown", "limits requests.*retried for 1.5 s"),
    ],
)
async def test_a_store_that_rejects(
    objects: ObstoreObjects, proxy: ObjectProxy, status: int, code: str, reason: str
) -> None:
    proxy.inject(FaultKind.STATUS, status=status, code=code, times=math.inf)
    await check_rejected(objects, reason)


async def test_a_store_that_ignores_if_none_match(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.UNCONDITIONAL, method="PUT", contains="created", times=math.inf)
    await check_rejected(objects, r"created \.probe/.*/created twice, so it ignores If-None-Match.*conditional writes")


async def test_a_store_whose_creations_are_not_atomic(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    proxy.inject(FaultKind.UNCONDITIONAL, method="PUT", contains="contested", times=math.inf)
    await check_rejected(objects, r"accepted \d of 8 creations of .* at once.*conditional writes")


async def test_a_store_that_ignores_if_match(objects: ObstoreObjects, proxy: ObjectProxy) -> None:
    def strip_replacements(request: object) -> None:
        if b"\r\nif-match:" in request.head.lower():  # type: ignore[attr-defined]
            proxy.inject(FaultKind.UNCONDITIONAL, method="PUT")

    proxy.on_request = strip_replacements
    await check_rejected(objects, "version differed, so it ignores If-Match.*conditional writes")


def store_without(op: ObjectOp, answer: ObjectAnswer, key: str = "") -> MemoryObjects:
    """Return a store that gives one answer to all requests of a kind."""
    bucket = MemoryBucket(lambda: 0)

    async def carry(request: ObjectRequest) -> ObjectAnswer:
        real = bucket.apply(request)
        return answer if request.op is op and key in request.key else real

    return MemoryObjects(bucket, carry=carry)


async def test_a_store_that_does_not_list_what_was_written() -> None:
    await check_rejected(store_without(ObjectOp.LIST, ()), "does not list .*strongly consistent")


async def test_a_store_that_returns_an_older_content() -> None:
    objects = MemoryObjects(MemoryBucket(lambda: 0))
    await objects.create("a", [b"probe"])
    older = await objects.get("a")
    await check_rejected(store_without(ObjectOp.GET, older, "created"), "does not return .*strongly consistent")


@pytest.mark.parametrize("kind", [FaultKind.REPLY_LOST, FaultKind.RESET])
async def test_lost_answers_are_no_reason_to_reject(
    objects: ObstoreObjects, proxy: ObjectProxy, direct: ObstoreObjects, kind: FaultKind
) -> None:
    for part in ("created", "contested", "created"):
        proxy.inject(kind, contains=part)
    await probe(objects, random.Random(2))
    assert [page async for page in direct.list()] == []
    assert not [fault for fault in proxy.faults if fault.times]


async def test_what_cannot_be_deleted_is_left(
    objects: ObstoreObjects, proxy: ObjectProxy, caplog: pytest.LogCaptureFixture
) -> None:
    proxy.inject(FaultKind.STATUS, method="POST", status=403, code="AccessDenied", times=math.inf)
    await probe(objects, random.Random(3))
    assert "probe left behind" in caplog.text
