"""Listings and deletions of stores that differ from S3, and failures between two pages."""

import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from seaweedmq.errors import StorageFailed
from seaweedmq.storage.objects import obstore_objects
from seaweedmq.storage.objects.meter import RequestKind
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.uri import ObjectsUri
from tests.support.moto_server import MotoServer, point_to

DATE = datetime(2026, 1, 1, tzinfo=UTC)


class Reset(Exception):
    """An error of the client library."""


class Library:
    """A client library with the listing of a store; the numbered pages fail once."""

    def __init__(self, keys: Sequence[str], failing: Sequence[int] = (), *, heeds_offset: bool = True) -> None:
        self._keys = keys
        self._failing = list(failing)
        self._heeds_offset = heeds_offset
        self.offsets: list[str | None] = []

    async def list(
        self, client: object, folder: str | None, *, offset: str | None, chunk_size: int
    ) -> AsyncIterator[list[dict[str, Any]]]:
        self.offsets.append(offset)
        keys = [key for key in self._keys if not (self._heeds_offset and offset) or key > str(offset)]
        for number, start in enumerate(range(0, len(keys), chunk_size)):
            if number in self._failing:
                self._failing.remove(number)
                raise OSError("reset")
            yield [
                {"path": key, "size": 1, "e_tag": "x", "last_modified": DATE}
                for key in keys[start : start + chunk_size]
            ]


@pytest.fixture
def objects(moto: MotoServer, monkeypatch: pytest.MonkeyPatch) -> ObstoreObjects:
    point_to(moto, monkeypatch.setenv, monkeypatch.delenv)
    monkeypatch.setattr(obstore_objects, "PAGE_OBJECTS", 3)
    return ObstoreObjects(ObjectsUri("s3", "bucket", "prefix"), rng=random.Random(1))


def use(monkeypatch: pytest.MonkeyPatch, objects: ObstoreObjects, library: Library) -> None:
    monkeypatch.setattr(objects, "_library", library)


async def listed(objects: ObstoreObjects, after: str = "") -> list[str]:
    return [state.key async for page in objects.list(after=after) for state in page]


KEYS = [f"k{number}" for number in range(9)]


@pytest.mark.parametrize("heeds_offset", [True, False])
@pytest.mark.parametrize("after", ["", "k0", "k4", "k8"])
@pytest.mark.parametrize("failing", [(), (0,), (1,), (0, 0, 1), (2, 1)])
async def test_a_listing_in_order_continues_after_a_failure(
    objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch, heeds_offset: bool, after: str, failing: Sequence[int]
) -> None:
    use(monkeypatch, objects, Library(KEYS, failing, heeds_offset=heeds_offset))
    assert await listed(objects, after) == [key for key in KEYS if key > after]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("after", ["", "k4"])
async def test_a_listing_without_order_has_each_object_once(
    objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch, seed: int, after: str
) -> None:
    keys = random.Random(seed).sample(KEYS, len(KEYS))
    use(monkeypatch, objects, Library(keys, heeds_offset=False))
    assert sorted(await listed(objects, after)) == [key for key in KEYS if key > after]


async def test_pages_in_order_may_be_out_of_order_among_them(
    objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = ["k6", "k7", "k8", "k0", "k1", "k2", "k3", "k4", "k5"]
    use(monkeypatch, objects, Library(keys))
    assert await listed(objects) == keys


async def test_a_failure_ends_a_listing_without_order(objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(["k2", "k1", "k0", *KEYS[3:]], [1])
    use(monkeypatch, objects, library)
    with pytest.raises(StorageFailed, match="failed between two pages; list again"):
        await listed(objects)
    assert library.offsets == [None]


class OneByOne:
    """A client library whose deletion of several objects ends at the first missing one, as on Azure."""

    def __init__(self, *keys: str) -> None:
        self.keys = set(keys)
        self.calls = 0

    async def delete_async(self, client: object, keys: Sequence[str]) -> None:
        self.calls += 1
        for key in keys:
            if key not in self.keys:
                raise FileNotFoundError(f"Object at location {key} not found")
            self.keys.remove(key)


async def test_a_missing_object_does_not_end_a_deletion(
    objects: ObstoreObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = OneByOne("a", "b", "c", "d")
    monkeypatch.setattr(objects, "_library", library)
    await objects.delete(["missing", "a", "also missing", "b"])
    assert library.keys == {"c", "d"}
    assert objects.meter.counts().requests[RequestKind.DELETE] == library.calls
