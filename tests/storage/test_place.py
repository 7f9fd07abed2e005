"""A place is a value that travels to other processes; its files appear whole or not at all."""

import pickle
from pathlib import Path

import pytest

from seaweedmq.errors import NotFound
from seaweedmq.storage.directory_place import DirectoryPlace, segment_file
from tests.support.topic_files import TopicFiles


def test_a_place_travels_and_names_its_directory(tmp_path: Path) -> None:
    place = DirectoryPlace.parse(tmp_path.as_uri())
    assert pickle.loads(pickle.dumps(place)) == place == DirectoryPlace.parse(str(tmp_path))
    assert (str(place), len({place, DirectoryPlace(tmp_path)})) == (str(tmp_path), 1)
    assert place.exists()
    assert not DirectoryPlace(tmp_path / "unmounted").exists()


def test_files_are_created_once_replaced_whole_and_deleted(tmp_path: Path) -> None:
    place = DirectoryPlace(tmp_path)
    place.make_folder("topics/shop")
    place.create("topics/shop/a.json", b"1")
    with pytest.raises(FileExistsError):
        place.create("topics/shop/a.json", b"2")
    before = place.state("topics/shop/a.json")
    place.replace("topics/shop/a.json", b"22")
    assert place.read("topics/shop/a.json") == b"22"
    assert place.state("topics/shop/a.json") != before
    place.path("topics/shop/.hidden").touch()
    assert place.names("topics/shop") == place.names("topics/shop", ".json") == ["a.json"]
    place.delete("topics/shop/a.json", "topics/shop/gone.json")
    assert (place.names("topics/shop"), place.names("nowhere"), place.state("nowhere")) == ([], [], None)


def test_folders_are_created_below_the_root_alone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DirectoryPlace(tmp_path / "unmounted").make_folder("topics/shop")
    with pytest.raises(FileNotFoundError):
        DirectoryPlace(tmp_path).make_folder("topics/shop", sibling="cluster.json")
    assert list(tmp_path.iterdir()) == []


def test_a_listed_file_opens_until_it_is_deleted(tmp_path: Path) -> None:
    files, place = TopicFiles(tmp_path), DirectoryPlace(tmp_path)
    table = files.table(0, 10, keep_log=True)
    (log,) = place.logs(files.name, 0)
    assert sorted(f.path for f in place.segment_files(files.name, 0)) == sorted((log.path, table.path))
    assert place.topic_files(files.name) == [*place.logs(files.name, 0), *place.tables(files.name, [0])]
    assert segment_file(table.path, place.path(table.path).stat()) in place.tables(files.name, [0])
    with place.open_input(log) as source:
        assert source.size() == log.size_bytes
    place.delete(log.path)
    with pytest.raises(NotFound):
        place.open_input(log)
