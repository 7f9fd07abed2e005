"""`subscribe --save-to` writes every value to a file of the folder, under a safe name for each key."""

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seaweedmq.cli.records.saving import NAME_LENGTH_MAX, SaveFolder, file_name, other_name
from seaweedmq.client.subscribe.messages import Message, Origin
from seaweedmq.errors import InvalidArgument, PayloadLost


class _Payloads:
    """Payloads of a topic without brokers."""

    def __init__(self, broken: bool = False) -> None:
        self._broken = broken

    def open(self, value: bytes) -> io.RawIOBase:
        return _Failing() if self._broken else io.BytesIO(value)


class _Failing(io.RawIOBase):
    """A payload that turns out to be lost behind its first bytes."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = False

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: bytearray) -> int:
        if self._passed:
            raise PayloadLost("payload is short")
        self._passed = True
        buffer[:5] = b"first"
        return 5


def record(key: bytes | None, value: bytes | None, offset: int = 0, *, broken: bool = False) -> Message:
    return Message(Origin("shop/films", 3, None, _Payloads(broken)), offset, 0, key, value, None)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[SaveFolder]:
    (tmp_path / "outside").write_bytes(b"outside")
    with SaveFolder(tmp_path / "saved") as opened:
        yield opened
    assert (tmp_path / "outside").read_bytes() == b"outside"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["outside", "saved"], "nothing outside"


def content(folder: SaveFolder) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.path.iterdir()}


KEYS = {
    "plain": (b"video.mp4", "video.mp4"),
    "parent": (b"../outside", "%2E.%2Foutside"),
    "absolute": (b"/etc/passwd", "%2Fetc%2Fpasswd"),
    "NUL": (b"a\0b", "a%00b"),
    "dot": (b".", "%2E"),
    "dots": (b"..", "%2E."),
    "hidden": (b".bashrc", "%2Ebashrc"),
    "an option": (b"-rf", "%2Drf"),
    "empty": (b"", "record~3-0"),
    "none": (None, "record~3-0"),
    "not UTF-8": (b"\xff\xfe.bin", "%FF%FE.bin"),
    "umlaut": ("ü.txt".encode(), "%C3%BC.txt"),
    "newline": (b"a\nb\n", "a%0Ab%0A"),
    "escape": (b"\x1b[2J", "%1B%5B2J"),
    "percent": (b"a%2Fb", "a%252Fb"),
    "backslash": (b"..\\x", "%2E.%5Cx"),
    "spaces": (b" a ", " a%20"),
    "tilde": (b"record~3-0", "record%7E3-0"),
    "300 bytes": (b"k" * 300 + b".mp4", "k" * 79 + "~ and a hash"),
}


@pytest.mark.parametrize(("key", "name"), KEYS.values(), ids=KEYS)
def test_a_key_is_one_name_in_the_folder(folder: SaveFolder, key: bytes | None, name: str) -> None:
    saved = folder.save(record(key, b"content"))
    if key is not None and len(key) > 255:
        assert saved is not None
        assert (len(saved), saved[:79], saved[-4:]) == (NAME_LENGTH_MAX, name[:79], ".mp4")
    else:
        assert saved == name
    assert content(folder) == {saved: b"content"}


@given(st.binary(max_size=400), st.binary(max_size=400))
def test_any_key_is_a_safe_name_and_different_keys_have_different_ones(key: bytes, other: bytes) -> None:
    name = file_name(key, 0, 0)
    assert 0 < len(name) <= NAME_LENGTH_MAX
    assert name.isascii()
    assert name.isprintable()
    assert not name.startswith((".", "-"))
    assert "/" not in name
    assert (name == file_name(other, 0, 0)) == (key == other)
    assert other_name(name, 0, 0) != file_name(other, 1, 1)


def test_every_record_of_a_key_has_a_file(folder: SaveFolder) -> None:
    names = [folder.save(record(b"film.mp4", b"%d" % offset, offset)) for offset in range(3)]
    assert names == ["film.mp4", "film~3-1.mp4", "film~3-2.mp4"]
    assert content(folder) == {"film.mp4": b"0", "film~3-1.mp4": b"1", "film~3-2.mp4": b"2"}


def test_records_of_several_topics_replace_none(folder: SaveFolder) -> None:
    for topic in range(3):
        for offset in range(2):
            folder.save(record(b"film.mp4", b"%d-%d" % (topic, offset), offset))
    assert sorted(content(folder).values()) == [b"0-0", b"0-1", b"1-0", b"1-1", b"2-0", b"2-1"]
    names = {*content(folder)}
    assert folder.save(record(b"film.mp4", b"2-1", 1)) in names
    assert {*content(folder)} == names, "the same record of an earlier run"


def test_a_pipe_or_folder_under_every_name_is_left_alone(folder: SaveFolder) -> None:
    os.mkfifo(folder.path / "film.mp4")
    os.mkfifo(folder.path / "film~3-0.mp4")
    (folder.path / "film~3-0~2.mp4").mkdir()
    assert folder.save(record(b"film.mp4", b"new")) == "film~3-0~3.mp4"
    assert (folder.path / "film~3-0.mp4").is_fifo()


def test_a_key_that_looks_like_the_name_of_a_later_record_harms_none(folder: SaveFolder) -> None:
    records = [(b"film~3-1.mp4", b"0"), (b"film.mp4", b"1"), (b"film.mp4", b"2"), (b"record~3-4", b"3"), (None, b"4")]
    for offset, (key, value) in enumerate(records):
        folder.save(record(key, value, offset))
    assert sorted(content(folder).values()) == [b"0", b"1", b"2", b"3", b"4"]


def test_values_are_saved_and_deletions_are_not(folder: SaveFolder) -> None:
    assert folder.save(record(b"empty", b"")) == "empty"
    assert folder.save(record(b"gone", None)) is None
    assert content(folder) == {"empty": b""}


def test_a_symbolic_link_is_not_followed(folder: SaveFolder, tmp_path: Path) -> None:
    for name in ("film.mp4", "film~3-0.mp4"):
        (folder.path / name).symlink_to(tmp_path / "outside")
    assert folder.save(record(b"film.mp4", b"new")) == "film~3-0~2.mp4"
    saved = folder.path / "film~3-0~2.mp4"
    assert (saved.is_symlink(), saved.read_bytes()) == (False, b"new")


def test_a_folder_under_the_name_is_left_alone(folder: SaveFolder) -> None:
    (folder.path / "film.mp4").mkdir()
    assert folder.save(record(b"film.mp4", b"new")) == "film~3-0.mp4"


def test_of_a_lost_payload_nothing_remains(folder: SaveFolder) -> None:
    with pytest.raises(PayloadLost):
        folder.save(record(b"film.mp4", b"", broken=True))
    assert content(folder) == {}


def test_without_hard_links_names_are_as_safe(folder: SaveFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    names = [folder.save(record(b"film.mp4", b"%d" % offset, offset)) for offset in range(2)]
    assert names == ["film.mp4", "film~3-1.mp4"]
    assert content(folder) == {"film.mp4": b"0", "film~3-1.mp4": b"1"}


def test_a_folder_that_is_none_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path in (tmp_path / "file", tmp_path / "no" / "parent"):
        with pytest.raises(InvalidArgument, match="give a folder that exists, or whose parent does"):
            SaveFolder(path)
