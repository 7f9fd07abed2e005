"""One suite for every kind of place."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seaweedmq.codec.paths import TOPIC_DOCUMENT, batch_dir, document_path, sink_marks_dir, staged_dir, topic_dir
from seaweedmq.codec.state.documents import topic_document
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.object_files import BLOCK_BYTES
from seaweedmq.storage.object_place import ObjectPlace
from seaweedmq.storage.place import Place
from tests.support.moto_server import MotoServer
from tests.support.object_places import memory_place
from tests.support.object_places import moto_place as on_moto
from tests.support.segments import NAME, make_topic

FOLDER = batch_dir(NAME, "q-1", 0)


@pytest.fixture
def moto_place(moto: MotoServer) -> Iterator[ObjectPlace]:
    with on_moto(moto) as place:
        yield place


@pytest.fixture(params=["directory", "memory", "moto"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Provide an empty storage with one topic."""
    made: Place
    match request.param:
        case "directory":
            made = DirectoryPlace(tmp_path)
            made.make_folder(topic_dir(NAME))
        case "memory":
            made = memory_place()
        case _:
            made = request.getfixturevalue("moto_place")
    made.replace(document_path(NAME, TOPIC_DOCUMENT), topic_document(make_topic()))
    made.make_below(topic_dir(NAME), FOLDER)
    return made


def test_a_file_is_created_once_and_replaced(place: Place) -> None:
    path = f"{FOLDER}/manifest.json"
    with pytest.raises(FileNotFoundError):
        place.read(path)
    assert (place.state(path), place.has(path)) == (None, False)
    place.create(path, b"one")
    with pytest.raises(FileExistsError):
        place.create(path, b"other")
    before = place.state(path)
    assert (place.read(path), place.has(path), place.state(path)) == (b"one", True, before)
    place.replace(path, b"two")
    assert place.read(path) == b"two"
    assert place.state(path) not in (None, before)
    place.delete(path, path)
    assert not place.has(path)


def test_an_update_is_made_of_the_content(place: Place) -> None:
    path = f"{FOLDER}/done.json"
    seen: list[bytes | None] = []

    def longer(before: bytes | None) -> bytes | None:
        seen.append(before)
        return None if before == b"aa" else (before or b"") + b"a"

    for _ in range(3):
        place.update(path, longer)
    assert (seen, place.read(path)) == ([None, b"a", b"aa"], b"aa")


def test_listings_have_all_names_and_show_folders(place: Place) -> None:
    for name in ("b.json", ".hidden", "a.json"):
        place.create(f"{FOLDER}/{name}", b"")
    assert sorted(place.listdir(FOLDER)) == [".hidden", "a.json", "b.json"]
    assert place.names(FOLDER, ".json") == ["a.json", "b.json"]
    assert place.entries(staged_dir(NAME)) == [("q-1", True)]
    assert [tuple(each) for each in place.entries(FOLDER)] == [(".hidden", False), ("a.json", False), ("b.json", False)]
    place.remove_tree(staged_dir(NAME))
    place.remove_tree(staged_dir(NAME))
    assert (place.has(staged_dir(NAME)), place.names(FOLDER)) == (False, [])
    for listing in (place.listdir, place.entries):
        with pytest.raises(FileNotFoundError):
            listing(FOLDER)


def test_a_large_file_is_written_and_read_in_ranges(place: Place) -> None:
    path = f"{FOLDER}/part.frames"
    content = b"".join(number.to_bytes(4, "big") for number in range(BLOCK_BYTES // 4 + 1_000))
    writer = place.open_writer(path)
    writer.write([content[:10], memoryview(content)[10:]])
    writer.finish()
    writer.close(keep=True)
    reader = place.open_reader(path)
    ranges = [(0, 10), (BLOCK_BYTES - 5, 10), (BLOCK_BYTES + 3, 8), (len(content) - 3, 100), (1, BLOCK_BYTES + 1)]
    for position, length in ranges:
        assert bytes(reader.read_at(position, length)) == content[position : position + length], position
    assert not len(reader.read_at(len(content) + 5, 4))
    reader.close()


def test_an_unwanted_file_is_not_there(place: Place) -> None:
    for is_finished in (False, True):
        writer = place.open_writer(f"{FOLDER}/part.frames")
        writer.write([b"some"])
        if is_finished:
            writer.finish()
        writer.close(keep=False)
        writer.close(keep=False)
        assert not place.has(f"{FOLDER}/part.frames")


def test_dates_are_by_the_clock_of_the_storage(place: Place) -> None:
    place.touch(f"{FOLDER}/mark", durable=True)
    now_s = place.clock_s(FOLDER)
    assert abs(place.modified_us(f"{FOLDER}/mark") / 1e6 - now_s) < 2
    assert abs(place.touched_s(FOLDER) - now_s) < 2
    assert abs(now_s - time.time()) < 2


def test_a_folder_is_made_only_in_what_exists(place: Place) -> None:
    place.make_below("topics/shop", sink_marks_dir(NAME))
    gone = f"{topic_dir(NAME)}-2"
    for existing in (gone, "topics/nothing"):
        with pytest.raises(FileNotFoundError):
            place.make_below(existing, f"{existing}/.staged/q")
