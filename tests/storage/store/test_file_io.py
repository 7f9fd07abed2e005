"""Reads that bypass the page cache."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seaweedmq.storage.file_io import OnceReader

CONTENT = os.urandom(100_000)


@pytest.fixture
def fd(tmp_path: Path) -> Iterator[int]:
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


def check(reader: OnceReader) -> None:
    for position, length in ((0, 100_000), (1, 4_096), (99_990, 4_096), (50_001, 0), (100_000, 10), (200_000, 10)):
        assert bytes(reader.read_at(position, length)) == CONTENT[position : position + length]


def test_it_reads_what_is_there_up_to_the_end_of_the_file(fd: int) -> None:
    check(OnceReader(fd))


@pytest.mark.parametrize("refusal", [errno.EOPNOTSUPP, errno.EINVAL])
def test_where_the_flag_is_unknown_it_is_a_plain_read(fd: int, refusal: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuse(*call: Any) -> int:
        asked.append(call[2])
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "preadv", refuse)
    check(OnceReader(fd))
    assert asked == [0]


def test_a_read_that_fails_in_the_middle_is_told(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*call: Any) -> int:
        if call[2]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        call[1][0][:10] = CONTENT[:10]
        return 10

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output"):
        OnceReader(fd).read_at(0, 100)


def test_what_is_known_already_is_not_read_again(fd: int, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    preadv = os.preadv

    def noted(*call: Any) -> int:
        read.append(call[2])
        return preadv(*call)

    monkeypatch.setattr(os, "preadv", noted)
    reader = OnceReader(fd)
    assert bytes(reader.read_at(10, 100, known=CONTENT[10:70])) == CONTENT[10:110]
    assert bytes(reader.read_at(10, 60, known=CONTENT[10:70])) == CONTENT[10:70]
    assert read == [70]
