"""Verification and sweep of the payloads that the records of a topic refer to."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from seaweedmq.codec.paths import kept_path
from seaweedmq.errors import Corrupt, NotFound
from seaweedmq.model.files import FileKind
from seaweedmq.model.reference import PayloadReference
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.jobs import payloads
from seaweedmq.storage.jobs.payloads import VerifiedPayloads, sweep_payloads, verify_payloads
from tests.support.referenced_files import ReferencedFiles, payload_of, put_payload

NOW_US = 4_000_000_000_000_000
"""A time after that of the storage's clock, which then decides alone."""
REFERRING = (3, 7, 12, 18)


@pytest.fixture
def films(tmp_path: Path) -> ReferencedFiles:
    """A topic with a table, a table whose log is still there, and a log; each has records by reference."""
    files = ReferencedFiles(tmp_path, referring=REFERRING)
    files.table(0, 5)
    files.table(5, 10, keep_log=True)
    files.log(10, 20)
    return files


def verified(files: ReferencedFiles) -> VerifiedPayloads:
    return verify_payloads(DirectoryPlace(files.root), files.name)


def age(place: DirectoryPlace, uri: str) -> None:
    os.utime(place.path(uri), (1_000_000_000, 1_000_000_000))


def swept(files: ReferencedFiles, now_us: int = NOW_US) -> list[str]:
    return sweep_payloads(DirectoryPlace(files.root), files.name, now_us=now_us).deleted


def test_sound_payloads_of_tables_and_logs(films: ReferencedFiles) -> None:
    said: list[tuple[int, int]] = []
    found = verify_payloads(
        DirectoryPlace(films.root), films.name, progress=lambda done, total: said.append((done, total))
    )
    total = sum(len(payload_of(offset)) for offset in REFERRING)
    assert (found.payloads, found.bytes, found.problems) == (4, total, [])
    assert found.records == 5, "one is in a table and in a log"
    assert said[-1] == (total, total)


def delete(path: Path) -> None:
    path.unlink()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[5] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    os.truncate(path, 9)


def extend(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"x")


@pytest.mark.parametrize(
    ("damage", "why"),
    [
        (delete, "cannot be read"),
        (flip, "has SHA-256"),
        (cut, "ends after 9 of 220 bytes"),
        (extend, "has 221 bytes instead of 220"),
    ],
)
@pytest.mark.parametrize("offset", [12, 18])
def test_a_lost_payload_is_named_with_its_record(
    films: ReferencedFiles, damage: Callable[[Path], None], why: str, offset: int
) -> None:
    reference = films.reference(offset)
    assert reference.size_bytes == 220
    damage(DirectoryPlace(films.root).path(reference.uri))
    (problem,) = verified(films).problems
    assert problem.offset == offset
    assert problem.path.endswith("-b-1.log")
    assert reference.uri in problem.what
    assert why in problem.what


def test_a_payload_of_another_topic_is_lost(tmp_path: Path) -> None:
    class Foreign(ReferencedFiles):
        def reference(self, offset: int) -> PayloadReference:
            return put_payload(DirectoryPlace(self.root), self, offset, b"x", uid=99)

    files = Foreign(tmp_path, referring=(3,))
    files.log(0, 5)
    (problem,) = verified(files).problems
    assert problem.offset == 3
    assert "is not one of topic" in problem.what


def test_the_sweep_deletes_what_no_record_names(films: ReferencedFiles) -> None:
    place = DirectoryPlace(films.root)
    unnamed, young = (put_payload(place, films, number, b"x").uri for number in (900, 901))
    named = [films.reference(offset).uri for offset in REFERRING]
    for uri in (unnamed, *named):
        age(place, uri)
    assert swept(films) == [unnamed]
    assert verified(films).problems == []
    assert place.path(young).exists()


def test_the_sweep_needs_every_clock(films: ReferencedFiles) -> None:
    place = DirectoryPlace(films.root)
    unnamed = put_payload(place, films, 900, b"x").uri
    age(place, unnamed)
    assert swept(films, now_us=1_000_000_001_000_000) == []
    assert swept(films) == [unnamed]


def test_the_sweep_spares_what_a_retained_table_names(films: ReferencedFiles) -> None:
    """A query that listed the table before its expiry may still read it."""
    place = DirectoryPlace(films.root)
    (table, *_) = sorted((f for f in films.files(0) if f.kind is FileKind.TABLE), key=lambda f: f.base_offset)
    named = films.reference(3).uri
    age(place, named)
    place.path(table.path).unlink()
    assert swept(films) == []
    place.path(kept_path(table.path)).unlink()
    assert swept(films) == [named]


def test_the_sweep_of_a_damaged_topic_deletes_nothing(films: ReferencedFiles) -> None:
    place = DirectoryPlace(films.root)
    unnamed = put_payload(place, films, 900, b"x").uri
    age(place, unnamed)
    table = next(f for f in films.files(0) if f.kind is FileKind.TABLE)
    cut(place.path(table.path))
    with pytest.raises(Corrupt, match="restore it from a copy"):
        swept(films)
    assert place.path(unnamed).exists()


def test_a_log_that_is_converted_meanwhile_is_read_as_a_table(
    films: ReferencedFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = DirectoryPlace(films.root)
    for offset in REFERRING:
        age(place, films.reference(offset).uri)
    read = payloads._of_log  # noqa: SLF001 - the moment between listing and reading

    def converted(*arguments: object) -> object:
        monkeypatch.setattr(payloads, "_of_log", read)
        for file in films.files(0):
            if file.kind is FileKind.LOG and file.base_offset == 10:
                place.path(file.path).unlink()
        films.table(10, 20)
        return read(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(payloads, "_of_log", converted)
    assert swept(films) == []
    assert verified(films).problems == []


def test_a_topic_without_payloads_and_one_that_is_not_there(tmp_path: Path) -> None:
    files = ReferencedFiles(tmp_path)
    files.log(0, 5)
    assert (verified(files).payloads, swept(files)) == (0, [])
    with pytest.raises(NotFound):
        sweep_payloads(DirectoryPlace(tmp_path), type(files.name)("shop", "none"), now_us=NOW_US)
