"""Payloads to be uploaded: files in every state, streams and values."""

import io
import os
import threading
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from seaweedmq.client.publish.uploads.sources import FileSource, StreamSource, ValueSource, new_upload_id
from seaweedmq.errors import Closed, InvalidArgument

ID = "0" * 32


@pytest.fixture
def film(tmp_path: Path) -> Path:
    path = tmp_path / "film.mp4"
    path.write_bytes(b"0123456789")
    return path


def test_a_file_is_read_at_any_position(film: Path) -> None:
    source = FileSource(film)
    assert (source.size_bytes, source.content_type, source.memory_bytes) == (10, "video/mp4", 0)
    assert [source.read(at, 4) for at in (0, 4, 8, 10, 50, 2)] == [b"0123", b"4567", b"89", b"", b"", b"2345"]
    source.stored(10)
    source.check()
    source.close()
    source.close()
    with pytest.raises(Closed):
        source.read(0, 1)


def test_an_empty_file_is_an_empty_payload(tmp_path: Path) -> None:
    path = tmp_path / "nothing"
    path.touch()
    source = FileSource(path)
    assert (source.read(0, 9), source.size_bytes, source.content_type) == (b"", 0, "application/octet-stream")
    source.close()


def grow(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


def shrink(path: Path) -> None:
    os.truncate(path, 3)


def rewrite(path: Path) -> None:
    path.write_bytes(b"9876543210")
    os.utime(path, (1, 1))


def replace(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(b"other text")
    other.replace(path)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (grow, "grew from 10 to 14 bytes while it was sent: send it again once it is complete"),
        (shrink, "shrank from 10 to 3 bytes while it was sent"),
        (rewrite, "changed while it was sent"),
        (replace, "changed while it was sent"),
    ],
)
def test_a_file_that_changes_is_one_error(film: Path, change: Callable[[Path], None], why: str) -> None:
    before, during = FileSource(film), FileSource(film)
    assert during.read(0, 2) == b"01"
    change(film)
    with pytest.raises(InvalidArgument, match=why):
        before.read(0, 2)
    if change is not replace:  # The descriptor still has the replaced file, whole.
        with pytest.raises(InvalidArgument, match=why):
            during.check()
    before.close()
    during.close()


def test_a_file_cut_under_the_reader_is_one_error(film: Path) -> None:
    source = FileSource(film)
    assert source.read(0, 2) == b"01"
    shrink(film)
    with pytest.raises(InvalidArgument, match="shrank from 10 to 3 bytes"):
        source.read(2, 8)
    source.close()


def a_pipe(path: Path) -> Path:
    os.mkfifo(path / "pipe")
    return path / "pipe"


def unreadable(path: Path) -> Path:
    (path / "film").touch(mode=0)
    return path / "film"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (a_pipe, "is not a regular file: open it, and use send_stream"),
        (lambda path: path, "is a directory: send its files one by one, or an archive of them"),
        (lambda path: path / "gone", "cannot be read, No such file or directory: check the path"),
        (lambda _: Path("/dev/null"), "is not a regular file"),
        pytest.param(
            unreadable,
            "cannot be read, Permission denied",
            marks=pytest.mark.skipif(os.getuid() == 0, reason="root reads every file"),
        ),
    ],
)
def test_what_is_no_file_is_one_error(tmp_path: Path, make: Callable[[Path], Path], why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        FileSource(make(tmp_path))


def test_no_descriptor_is_left_open(film: Path, tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    source = FileSource(film)
    with pytest.raises(InvalidArgument):
        FileSource(tmp_path)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    source.read(0, 1)
    source.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_the_id_of_a_file_is_that_of_its_content(film: Path) -> None:
    first, again = FileSource(film), FileSource(film)
    assert first.upload_id == again.upload_id
    assert len(first.upload_id) == 32
    grow(film)
    assert FileSource(film).upload_id != first.upload_id


def test_a_stream_is_read_once_and_its_current_part_again() -> None:
    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            return super().read(min(size or 0, 3))

    source = StreamSource(Slow(b"0123456789"), ID)
    assert source.read(0, 4) == b"0123"
    assert source.read(4, 4) == b"4567"
    source.stored(4)
    assert source.read(4, 4) == b"4567"
    assert source.read(8, 4) == b"89"
    assert source.read(10, 4) == b""
    with pytest.raises(InvalidArgument, match="cannot be read again"):
        source.read(0, 1)


def test_a_stream_keeps_only_what_is_not_stored() -> None:
    source = StreamSource(io.BytesIO(bytes(10_000)), ID)
    for position in range(0, 10_000, 1_000):
        source.read(position, 1_000)
        source.stored(position + 1_000)
    assert not source._kept  # noqa: SLF001 - the bound of its memory


@pytest.mark.parametrize(
    ("stream", "why"),
    [
        (io.StringIO("text"), "opened as text: open it with mode 'rb'"),
        ("film.mp4", "needs an open binary file, not str: open it"),
        (None, "needs an open binary file, not NoneType"),
    ],
)
def test_what_is_no_stream_is_one_error(stream: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        StreamSource(stream, ID)


def test_a_closed_stream_is_one_error(film: Path) -> None:
    with film.open("rb") as file:
        source = StreamSource(file, ID)
    with pytest.raises(InvalidArgument, match="keep it open until it is sent"):
        source.read(0, 1)


def test_a_stream_without_blocking_is_one_error() -> None:
    class NotReady(io.RawIOBase):
        def read(self, size: int = -1) -> None:  # type: ignore[override]
            return None

    with pytest.raises(InvalidArgument, match="returned NoneType, not bytes"):
        StreamSource(NotReady(), ID).read(0, 1)  # type: ignore[arg-type]


def test_a_value_is_a_payload_in_memory() -> None:
    source = ValueSource(b"0123456789", new_upload_id(Random(1)))
    assert (source.read(8, 4), source.size_bytes, source.memory_bytes) == (b"89", 10, 10)
    assert len(source.upload_id) == 32


@pytest.mark.parametrize(
    ("content_type", "why"),
    [(5, "is int, it must be str"), ("text/\udcff", "not valid Unicode"), ("x" * 2_000, "limit of 1024")],
)
def test_what_is_no_content_type_is_one_error(film: Path, content_type: Any, why: str) -> None:
    with pytest.raises(InvalidArgument, match=why):
        FileSource(film, content_type)
    with pytest.raises(InvalidArgument, match=why):
        StreamSource(io.BytesIO(), ID, content_type)


def test_a_compressed_file_does_not_have_the_type_of_its_content(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv.gz"
    path.touch()
    assert FileSource(path).content_type == "application/octet-stream"


def test_a_path_with_a_null_character_is_one_error() -> None:
    with pytest.raises(InvalidArgument, match="cannot be read, embedded null byte"):
        FileSource("film\0.mp4")


def test_closing_does_not_wait_for_a_read_that_hangs(film: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    began, may_end = threading.Event(), threading.Event()

    def hanging(*_: int) -> bytes:
        began.set()
        assert may_end.wait(10)
        return b"0123"

    before = len(list(Path("/proc/self/fd").iterdir()))
    source = FileSource(film)
    monkeypatch.setattr(os, "pread", hanging)
    reader = threading.Thread(target=source.read, args=(0, 4))
    reader.start()
    assert began.wait(10)
    closer = threading.Thread(target=source.close)
    closer.start()
    closer.join(1)
    hung = closer.is_alive()
    may_end.set()
    reader.join(10)
    closer.join(10)
    assert not hung
    assert len(list(Path("/proc/self/fd").iterdir())) == before, "the reader closes the file"
