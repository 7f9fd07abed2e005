"""Journals of groups, byte by byte."""

import struct

import pytest
import xxhash

from seaweedmq.codec.state.group_journal import (
    JournalChange,
    JournalFrame,
    JournalKind,
    encode_journal_frame,
    journal_frames,
    replayed,
)
from seaweedmq.errors import Corrupt, Unsupported


def frame(kind: JournalKind, revision: int, *changes: JournalChange) -> bytes:
    return encode_journal_frame(JournalFrame(kind=kind, revision=revision, changes=changes))


def put(key: str, value: bytes) -> JournalChange:
    return JournalChange(key, value)


SNAPSHOT = frame(JournalKind.SNAPSHOT, 10, put("/a/1", b"one"), put("/a/2", b"two"), put("/b", b"three"))


def test_lines_change_the_snapshot_in_order():
    lines = [
        frame(JournalKind.CHANGES, 11, put("/a/1", b"eleven")),
        frame(JournalKind.CHANGES, 12, JournalChange("/b", None)),
        frame(JournalKind.CHANGES, 13, put("/c", b"new"), JournalChange("/a/", None, is_prefix=True)),
    ]
    assert replayed(b"".join([SNAPSHOT, *lines])) == {"/c": b"new"}
    assert replayed(b"".join([SNAPSHOT, *lines[:2]])) == {"/a/1": b"eleven", "/a/2": b"two"}


def test_a_line_that_is_older_than_the_snapshot_changes_nothing():
    old = frame(JournalKind.CHANGES, 9, put("/a/1", b"old"), JournalChange("/a/2", None))
    assert replayed(SNAPSHOT + old) == {"/a/1": b"one", "/a/2": b"two", "/b": b"three"}


def test_a_put_of_the_transaction_that_deletes_its_prefix_stays():
    line = frame(JournalKind.CHANGES, 11, put("/a/1", b"new"), JournalChange("/a/", None, is_prefix=True))
    assert replayed(SNAPSHOT + line) == {"/a/1": b"new", "/b": b"three"}
    line = frame(JournalKind.CHANGES, 11, JournalChange("/a/", None, is_prefix=True), put("/a/1", b"new"))
    assert replayed(SNAPSHOT + line) == {"/a/1": b"new", "/b": b"three"}


def test_without_a_whole_snapshot_a_journal_says_nothing():
    part = frame(JournalKind.PART, 10, put("/a", b"1"))
    assert replayed(b"") is None
    assert replayed(part) is None
    assert replayed(part + frame(JournalKind.SNAPSHOT, 10)) == {"/a": b"1"}
    assert all(replayed(SNAPSHOT[:cut]) is None for cut in range(len(SNAPSHOT)))


def test_a_torn_tail_is_no_line():
    line = frame(JournalKind.CHANGES, 11, put("/a/1", b"new"))
    before = replayed(SNAPSHOT)
    for cut in range(len(line)):
        assert replayed(SNAPSHOT + line[:cut]) == before
    for at in range(len(line)):
        damaged = bytearray(line)
        damaged[at] ^= 1
        assert replayed(SNAPSHOT + bytes(damaged)) == before
    assert replayed(SNAPSHOT + bytes(100)) == before


@pytest.mark.parametrize(
    ("text", "error"), [(b'{"v":2}', Unsupported), (b"[]", Corrupt), (b'{"v":1,"kind":"other"}', Corrupt)]
)
def test_sound_frames_of_others_are_refused(text, error):
    content = struct.pack("<IQ", len(text), xxhash.xxh3_64_intdigest(text)) + text
    with pytest.raises(error):
        list(journal_frames(content))
