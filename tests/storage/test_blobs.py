"""Payloads that records refer to, on a directory."""

import os
from pathlib import Path

import pytest

from seaweedmq.codec import paths
from seaweedmq.errors import Closed, InvalidArgument, NotFound
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import blobs
from seaweedmq.storage.directory_place import DirectoryPlace

TOPIC, UID = TopicName("shop", "films"), 7
DAY, NEXT_DAY = "2020-01-01", "2020-01-02"
BEFORE_US = 1_600_000_000_000_000
"""A time in 2020, after both days."""
ID = "0123456789abcdef" * 2
NAME = paths.blob_name(TOPIC, UID, DAY, ID)


@pytest.fixture
def place(tmp_path: Path) -> DirectoryPlace:
    return DirectoryPlace(tmp_path)


def put(place: DirectoryPlace, *parts: bytes, name: paths.BlobName = NAME) -> None:
    folder = place.make_folder(name.staged)
    for number, content in enumerate(parts):
        writer = blobs.PartWriter(place, folder, number)
        writer.append(content)
        writer.keep()
        writer.close()


@pytest.mark.parametrize("parts", [(b"",), (b"one",), (b"four", b"four", b"3")])
def test_a_payload_is_read_as_one(place: DirectoryPlace, parts: tuple[bytes, ...]) -> None:
    whole = b"".join(parts)
    put(place, *parts)
    blobs.complete_blob(place, NAME, len(parts), len(whole))
    assert place.path(NAME.uri).is_file() == (len(parts) == 1)
    assert not place.path(NAME.staged).exists()
    for position in range(len(whole) + 2):
        for length in range(1, len(whole) + 2):
            assert blobs.read_blob(place, NAME, position, length) == whole[position : position + length]


def test_it_counts_only_when_it_is_complete(place: DirectoryPlace) -> None:
    put(place, b"four", b"four")
    with pytest.raises(NotFound, match=r"is missing in .* never completely uploaded"):
        blobs.read_blob(place, NAME, 0, 1)
    found = blobs.find_blob(place, TOPIC, UID, ID, (NEXT_DAY, DAY))
    assert found is not None
    assert (found.uri, list(found.parts), found.is_complete) == (NAME.uri, [(0, 4), (1, 4)], False)
    assert blobs.read_part(place, found, 1, 1, 9) == b"four"[1:]
    assert blobs.list_blobs(place, TOPIC, UID) == []
    blobs.complete_blob(place, NAME, 2, 8)
    blobs.complete_blob(place, NAME, 2, 8)
    found = blobs.find_blob(place, TOPIC, UID, ID, (NEXT_DAY, DAY))
    assert found is not None
    assert (list(found.parts), found.is_complete) == ([(0, 4), (1, 4)], True)
    assert [name for name, _ in blobs.list_blobs(place, TOPIC, UID)] == [NAME]
    assert blobs.blob_size(place, NAME) == 8
    assert blobs.find_blob(place, TOPIC, UID, ID, (NEXT_DAY,)) is None


def test_a_part_that_was_not_kept_is_not_there(place: DirectoryPlace) -> None:
    put(place, b"four")
    writer = blobs.PartWriter(place, place.path(NAME.staged), 1)
    writer.append(b"four")
    writer.close()
    writer.close()
    with pytest.raises(Closed):
        writer.append(b"more")
    assert [path.name for path in place.path(NAME.staged).iterdir()] == ["00000"]
    with pytest.raises(InvalidArgument, match="lacks parts: 1 of 2"):
        blobs.complete_blob(place, NAME, 2, 8)


@pytest.mark.parametrize(
    ("parts", "size", "why"),
    [
        ((b"four", b"2", b"four"), 9, "different sizes"),
        ((b"four", b"longer"), 10, "different sizes"),
        ((b"4",), 2, "not 2"),
    ],
)
def test_parts_that_make_no_payload_are_rejected(
    place: DirectoryPlace, parts: tuple[bytes, ...], size: int, why: str
) -> None:
    put(place, *parts)
    with pytest.raises(InvalidArgument, match=why):
        blobs.complete_blob(place, NAME, len(parts), size)


def test_parts_of_a_longer_attempt_are_dropped(place: DirectoryPlace) -> None:
    put(place, b"four", b"four", b"four")
    blobs.complete_blob(place, NAME, 2, 8)
    assert blobs.read_blob(place, NAME, 0, 99) == b"fourfour"


def test_the_sweep_deletes_only_what_is_old_and_not_named(place: DirectoryPlace) -> None:
    named, old, young = (paths.blob_name(TOPIC, UID, DAY, digit * 32) for digit in "abc")
    for name in (named, old, young):
        put(place, b"x", name=name)
        blobs.complete_blob(place, name, 1, 1)
    put(place, b"left")
    for path in (named.uri, old.uri, NAME.staged, f"{NAME.staged}/00000"):
        os.utime(place.path(path), (1_000, 1_000))
    assert blobs.delete_old_blobs(place, TOPIC, UID, BEFORE_US, {named.uri}.__contains__) == [old]
    assert [name for name, _ in blobs.list_blobs(place, TOPIC, UID)] == [named, young]
    assert not place.path(NAME.staged).exists()


def test_the_sweep_spares_days_that_uploads_may_continue(place: DirectoryPlace) -> None:
    young = paths.blob_name(TOPIC, UID, "2020-09-14", "d" * 32)
    put(place, b"x", name=young)
    blobs.complete_blob(place, young, 1, 1)
    os.utime(place.path(young.uri), (1_000, 1_000))
    assert blobs.delete_old_blobs(place, TOPIC, UID, BEFORE_US, lambda _: False) == []
    assert blobs.delete_old_blobs(place, TOPIC, UID, BEFORE_US + 86_400 * 1_000_000, lambda _: False) == [young]


def test_completion_makes_a_payload_young_again(place: DirectoryPlace) -> None:
    put(place, b"x")
    os.utime(place.path(f"{NAME.staged}/00000"), (1_000, 1_000))
    blobs.complete_blob(place, NAME, 1, 1)
    assert blobs.delete_old_blobs(place, TOPIC, UID, BEFORE_US, lambda _: False) == []


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "blobs",
        f"{NAME.uri}/00000",
        f"/{NAME.uri}",
        NAME.uri.replace("/7/", "/07/"),
        NAME.uri.replace("films", ".."),
        f"{NAME.uri}\n",
    ],
)
def test_other_paths_name_no_payload(uri: str) -> None:
    assert paths.parse_blob(uri) is None
    with pytest.raises(InvalidArgument, match="is not the path of a payload"):
        blobs.name_of(uri)


def test_names_are_read_back() -> None:
    assert paths.parse_blob(NAME.uri) == NAME
    assert paths.parse_part_name(paths.part_name(41)) == 41
    assert paths.parse_part_name("x0041") is None
    with pytest.raises(InvalidArgument, match="32 hexadecimal digits"):
        paths.blob_name(TOPIC, UID, DAY, "../x")
