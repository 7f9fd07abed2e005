"""Repeated checks of a topic for changes."""

from pathlib import Path

import pytest

from seaweedmq.codec.paths import table_dir
from seaweedmq.errors import NotFound
from seaweedmq.model.topic import TopicName
from seaweedmq.storage import watch
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.watch import SETTLING_S, TopicWatch, table_ends
from tests.support.topic_files import TopicFiles


class Clock:
    """A pause that ends on request."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_look_finds_what_is_new_and_nothing_else_is_made_anew(orders: TopicFiles) -> None:
    topic_watch = TopicWatch(DirectoryPlace(orders.root), orders.name, Clock())
    first = topic_watch.poll()
    assert (first.topic, [s.id for s in first.segments], first.table_ends) == (orders.topic, [0], {})
    orders.table(0, 20)
    second = topic_watch.poll()
    assert second.table_ends == {0: 20}
    assert second.segments is first.segments
    orders.split(0, 20)
    third = topic_watch.poll()
    assert [s.id for s in third.segments] == [0, 1, 2]
    assert topic_watch.poll() is third


def test_a_name_of_an_object_store_is_no_table_of_a_directory(orders: TopicFiles) -> None:
    table = orders.table(0, 20)
    path = orders.root / table.path
    path.with_name(f"{0:08d}-{0:020d}-{30:020d}-{1:015d}.parquet").write_bytes(b"")
    assert table_ends(DirectoryPlace(orders.root), orders.name) == {0: 20}


def test_a_file_is_found_that_came_together_with_another(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TopicWatch, "_state", lambda self, path: (1, 2, 3))  # a clock without progress
    clock = Clock()
    topic_watch = TopicWatch(DirectoryPlace(orders.root), orders.name, clock)
    orders.table(0, 20)
    assert topic_watch.poll().table_ends == {0: 20}
    clock.now += SETTLING_S - 0.1
    orders.table(20, 30)
    assert topic_watch.poll().table_ends == {0: 30}


def test_once_settled_no_folder_is_listed(orders: TopicFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    orders.table(0, 20)
    clock = Clock()
    topic_watch = TopicWatch(DirectoryPlace(orders.root), orders.name, clock)
    topic_watch.poll()
    clock.now += SETTLING_S
    settled = topic_watch.poll()
    monkeypatch.setattr(watch, "table_ends", None)
    monkeypatch.setattr(watch, "read_document", None)
    clock.now += 1_000
    assert topic_watch.poll() is settled


def test_names_that_are_no_tables_say_nothing(orders: TopicFiles) -> None:
    orders.table(0, 20)
    orders.table(20, 50, keep_log=True)
    folder = orders.root / table_dir(orders.name)
    for name in (".kept", "_delta_log", f"{9:08d}-{0:020d}-{7:020d}.parquet.tmp", f"{9:08d}-x.parquet", "notes"):
        (folder / name).touch()
    assert table_ends(DirectoryPlace(orders.root), orders.name) == {0: 50}


def test_a_topic_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="no topic shop/orders in"):
        TopicWatch(DirectoryPlace(tmp_path), TopicName("shop", "orders"), Clock()).poll()
