"""The contract of every Objects, on any store."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator

import pytest

from seaweedmq.errors import AlreadyExists, Conflict, InvalidArgument, NotFound
from seaweedmq.ports import Objects, ObjectState
from seaweedmq.storage.objects import obstore_objects
from seaweedmq.storage.objects.blocking import BlockingObjects
from seaweedmq.storage.objects.obstore_objects import ObstoreObjects
from seaweedmq.storage.objects.probe import probe
from seaweedmq.storage.objects.uri import ObjectsUri
from tests.doubles import memory_objects
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects
from tests.support.azurite import Azurite, running_azurite
from tests.support.moto_server import MotoServer, point_to

PREFIX = "pre fix/städte+%41"


@pytest.fixture(scope="module")
def azurite() -> Iterator[Azurite]:
    with running_azurite() as server:
        yield server


@pytest.fixture(params=["memory", "moto", pytest.param("azurite", marks=pytest.mark.deep)])
def objects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Objects:
    if request.param == "memory":
        return MemoryObjects(MemoryBucket(lambda: 1_700_000_000_000_000))
    if request.param == "azurite":
        azurite: Azurite = request.getfixturevalue("azurite")
        for name, value in azurite.environment().items():
            monkeypatch.setenv(name, value)
        return ObstoreObjects(ObjectsUri.parse(f"az://{azurite.new_container()}/{PREFIX}"))
    moto: MotoServer = request.getfixturevalue("moto")
    point_to(moto, monkeypatch.setenv, monkeypatch.delenv)
    return ObstoreObjects(ObjectsUri.parse(f"s3://{moto.new_bucket()}/{PREFIX}"))


async def content(objects: Objects, key: str) -> bytes:
    return bytes((await objects.get(key)).content)


async def listed(pages: AsyncIterator[object]) -> list[str]:
    return sorted([state.key async for page in pages for state in page])  # type: ignore[attr-defined]


async def test_an_object_is_created_once(objects: Objects) -> None:
    await objects.create("a/b", [b"first"])
    with pytest.raises(AlreadyExists, match=r"a/b exists"):
        await objects.create("a/b", [b"second"])
    assert await content(objects, "a/b") == b"first"


async def test_one_of_many_creations_at_once_succeeds(objects: Objects) -> None:
    calls = (objects.create("a", [b"%d" % number]) for number in range(16))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, AlreadyExists) for result in results) == 15
    winner = next(number for number, result in enumerate(results) if isinstance(result, str))
    assert await content(objects, "a") == b"%d" % winner


async def test_content_is_a_sequence_of_buffers(objects: Objects) -> None:
    frames = bytearray(b"..cdef..")
    await objects.create("a", [b"ab", memoryview(frames)[2:6], b"", memoryview(b"gh")])
    assert await content(objects, "a") == b"abcdefgh"
    await objects.create("none", [])
    await objects.create("empty", [b""])
    assert await content(objects, "none") == await content(objects, "empty") == b""


async def test_put_replaces_any_version(objects: Objects) -> None:
    first = await objects.put("a", [b"1"])
    second = await objects.put("a", [b"2"])
    assert first != second
    assert await content(objects, "a") == b"2"


async def test_only_the_given_version_is_replaced(objects: Objects) -> None:
    first = await objects.create("a", [b"1"])
    second = await objects.replace("a", [b"2"], e_tag=first)
    with pytest.raises(Conflict, match="read it again"):
        await objects.replace("a", [b"3"], e_tag=first)
    assert await content(objects, "a") == b"2"
    await objects.replace("a", [b"4"], e_tag=second)
    with pytest.raises(Conflict):
        await objects.replace("missing", [b"5"], e_tag=second)


async def test_one_of_many_replacements_at_once_succeeds(objects: Objects) -> None:
    first = await objects.create("a", [b"-"])
    calls = (objects.replace("a", [b"%d" % number], e_tag=first) for number in range(8))
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert sum(isinstance(result, Conflict) for result in results) == 7


async def test_content_and_state_are_of_one_version(objects: Objects) -> None:
    e_tag = await objects.create("a/b", [b"abc"])
    found = await objects.get("a/b")
    assert found.state == await objects.head("a/b") == ObjectState("a/b", 3, e_tag, found.state.modified_us)
    assert found.state.modified_us > 1_600_000_000_000_000
    assert found.content.readonly


async def test_an_unchanged_object_is_not_read(objects: Objects) -> None:
    first = await objects.create("a", [b"1"])
    assert await objects.get_changed("a", e_tag=first) is None
    second = await objects.put("a", [b"2"])
    found = await objects.get_changed("a", e_tag=first)
    assert found is not None
    assert (found.state.e_tag, bytes(found.content)) == (second, b"2")
    with pytest.raises(NotFound):
        await objects.get_changed("missing", e_tag=first)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [(0, 6, b"abcdef"), (2, 4, b"cd"), (4, 100, b"ef"), (6, 7, b""), (100, 200, b""), (3, 3, b"")],
)
async def test_ranges(objects: Objects, start: int, end: int, expected: bytes) -> None:
    await objects.create("a", [b"abcdef"])
    assert bytes(await objects.get_range("a", start, end)) == expected


async def test_a_range_of_an_empty_object_is_empty(objects: Objects) -> None:
    await objects.create("a", [])
    assert bytes(await objects.get_range("a", 0, 10)) == b""


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (3, 2)])
async def test_wrong_ranges_are_rejected(objects: Objects, start: int, end: int) -> None:
    with pytest.raises(InvalidArgument, match="0 <= start <= end"):
        await objects.get_range("a", start, end)


async def test_a_missing_object_is_not_found(objects: Objects) -> None:
    for call in (objects.get("a"), objects.head("a"), objects.get_range("a", 0, 1)):
        with pytest.raises(NotFound, match="a does not exist"):
            await call


async def test_deletion_ignores_missing_objects(objects: Objects) -> None:
    for key in ("a", "b", "c"):
        await objects.create(key, [b"1"])
    await objects.delete(["a", "missing", "b", "a"])
    await objects.delete(["missing"])
    await objects.delete(["missing", "missing too"])
    await objects.delete([])
    assert await listed(objects.list()) == ["c"]
    await objects.create("a", [b"2"])


async def test_a_listing_has_every_depth_of_one_folder(objects: Objects) -> None:
    keys = ["t/a", "t/b/c", "t/b/d/e", "tx", "t.x", "u/a"]
    for key in keys:
        await objects.create(key, [b"1"])
    assert await listed(objects.list("t")) == ["t/a", "t/b/c", "t/b/d/e"]
    assert await listed(objects.list()) == sorted(keys)
    assert await listed(objects.list("t", after="t/b/c")) == ["t/b/d/e"]
    assert await listed(objects.list("t", after="t/b")) == ["t/b/c", "t/b/d/e"]
    assert await listed(objects.list("t", after="u")) == []
    assert await listed(objects.list("missing")) == []


async def check_long_listing(objects: Objects, page_objects: int) -> None:
    count = 2 * page_objects + 3
    keys = [f"f/{number:05}" for number in range(count)]
    for start in range(0, count, 200):
        await asyncio.gather(*(objects.create(key, []) for key in keys[start : start + 200]))
    pages = [page async for page in objects.list("f")]
    assert [len(page) for page in pages] == [page_objects, page_objects, 3]
    assert sorted(state.key for page in pages for state in page) == keys
    assert await listed(objects.list("f", after=keys[page_objects - 1])) == keys[page_objects:]
    assert [state.key for state in (await objects.list_folder("f")).objects] == keys
    await objects.delete(keys, timeout_s=300.0)
    assert await listed(objects.list()) == []


async def test_a_long_listing_has_each_object_once(objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (obstore_objects, memory_objects):
        monkeypatch.setattr(module, "PAGE_OBJECTS", 30)
    await check_long_listing(objects, 30)


@pytest.mark.deep
async def test_a_listing_of_several_pages_of_the_store_has_each_object_once(objects: Objects) -> None:
    await check_long_listing(objects, 1_000)


async def test_a_folder_has_its_objects_and_folders(objects: Objects) -> None:
    for key in ("t/b", "t/a", "t/z/1", "t/c/d/2", "tx/3"):
        await objects.create(key, [b"12"])
    found = await objects.list_folder("t")
    assert [(state.key, state.size_bytes) for state in found.objects] == [("t/a", 2), ("t/b", 2)]
    assert found.folders == ["t/c", "t/z"]
    root = await objects.list_folder()
    assert (root.objects, root.folders) == ([], ["t", "tx"])
    missing = await objects.list_folder("missing")
    assert (missing.objects, missing.folders) == ([], [])


@pytest.mark.parametrize("key", ["a b", "%41", "ü/é", "a=b,c+d;e", "~*[]{}|^", ".hidden/x", "k?v#f", "a&b", "😀"])
async def test_keys_are_taken_as_they_are(objects: Objects, key: str) -> None:
    await objects.create(key, [b"1"])
    assert await content(objects, key) == b"1"
    assert (await objects.head(key)).key == key
    assert await listed(objects.list()) == [key]
    await objects.delete([key])
    assert await listed(objects.list()) == []


@pytest.mark.parametrize("key", ["/a", "a/", "a//b", "../a", "a/./b", "a\x00b", "a\nb", "", "\ud800"])
async def test_keys_that_stores_take_differently_are_rejected(objects: Objects, key: str) -> None:
    for call in (objects.create(key, [b"1"]), objects.get(key), objects.delete([key])):
        with pytest.raises(InvalidArgument, match="key"):
            await call
    with pytest.raises(InvalidArgument, match="key"):
        objects.open_writer(key)


@pytest.mark.parametrize("size_bytes", [0, 1, 5 << 20, (5 << 20) + 1, 17 << 20])
async def test_a_written_object_appears_when_it_is_complete(objects: Objects, size_bytes: int) -> None:
    data = random.Random(size_bytes).randbytes(size_bytes)
    writer = objects.open_writer("a", part_bytes=5 << 20)
    for start in range(0, size_bytes, 3 << 20):
        await writer.write(data[start : start + (3 << 20)])
        assert await listed(objects.list()) == []
    await writer.close()
    assert await content(objects, "a") == data


async def test_the_probe_accepts_the_store_and_leaves_nothing(objects: Objects) -> None:
    await probe(objects, random.Random(1))
    assert await listed(objects.list()) == []


def test_threads_see_the_same_store(objects: Objects) -> None:
    blocking = BlockingObjects(objects)
    first = blocking.create("t/a", [b"abc"])
    with pytest.raises(AlreadyExists):
        blocking.create("t/a", [b"x"])
    second = blocking.replace("t/a", [b"abcd"], e_tag=first)
    third = blocking.put("t/b", [b"e"])
    assert blocking.get_changed("t/a", e_tag=second) is None
    assert (bytes(blocking.get("t/a").content), bytes(blocking.get_range("t/a", 1, 3))) == (b"abcd", b"bc")
    assert blocking.head("t/b").e_tag == third
    assert [state.key for page in blocking.list("t") for state in page] == ["t/a", "t/b"]
    writer = blocking.open_writer("t/c/d")
    writer.write(b"1")
    writer.close()
    assert blocking.list_folder("t").folders == ["t/c"]
    assert "t/a" in blocking.sign("GET", "t/a", expires_s=60)
    blocking.delete(["t/a", "t/b", "t/c/d"])
    assert [*blocking.list()] == []
    assert blocking.uri == objects.uri
