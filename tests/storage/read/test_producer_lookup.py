"""The latest sequence of a producer, from the files that name it."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from seaweedmq.codec.logfile import decode_preamble, encode_preamble
from seaweedmq.errors import OutOfRange
from seaweedmq.model.segment import ProducerState
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.read.producer_lookup import stored_sequence
from tests.support.topic_files import TopicFiles

OURS = (1, 1)
"""Producer and epoch of every file of ``TopicFiles``; its sequences are the offsets."""


def found(
    files: TopicFiles, producer: tuple[int, int] = OURS, *, since_us: int = 0, sequence: int = 0, offset: int = 0
) -> int:
    return stored_sequence(
        DirectoryPlace(files.root),
        files.topic,
        files.segments[0],
        producer,
        since_us=since_us,
        sequence=sequence,
        offset=offset,
    )


def test_log_files_name_the_producer_of_every_frame(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    files.log(0, 40)
    files.log(40, 75)
    assert (found(files), found(files, (2, 1)), found(files, (1, 2), sequence=30, offset=30)) == (75, 0, 30)


def test_what_lies_beyond_the_end_of_a_sealed_segment_is_not_stored(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    files.log(0, 75)
    files.seal(0, 50)
    assert found(files) == 50


def test_tables_say_nothing_so_nobody_can_tell(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    files.table(0, 40)
    files.log(40, 75)
    with pytest.raises(OutOfRange, match="from offset 0 to 40 is in tables alone"):
        found(files)


def test_tables_of_what_was_acknowledged_or_of_before_are_of_no_matter(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    files.table(0, 40)
    files.log(40, 75)
    assert found(files, sequence=40, offset=40) == 75
    later = TopicFiles(tmp_path / "later")
    made = later.table(0, 40)
    assert found(later, since_us=made.modified_us + 3_600_000_000) == 0


def test_what_was_written_after_the_clock_was_set_back_is_no_older_than_what_came_before(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    first, second = files.log(0, 40), files.log(40, 75)
    begun_s = int(first.stat().st_mtime)
    os.utime(second, (begun_s - 7_200, begun_s - 7_200))
    assert found(files, since_us=begun_s * 1_000_000) == 75
    os.utime(first, (begun_s - 7_200, begun_s - 7_200))
    assert found(files, since_us=begun_s * 1_000_000) == 0


def test_a_log_file_that_remembers_the_producer_speaks_for_the_tables_before_it(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    files.table(0, 40)
    path = files.log(40, 75)
    data = path.read_bytes()
    preamble, length = decode_preamble(data)
    for epoch, expected in ((4, 40), (3, 0)):
        state = ProducerState(producer_id=9, producer_epoch=epoch, next_sequence=40)
        path.write_bytes(encode_preamble(replace(preamble, producers=(state,))) + data[length:])
        assert found(files, (9, 4)) == expected


def test_a_table_beside_its_log_file_hides_nothing(tmp_path: Path) -> None:
    files = TopicFiles(tmp_path)
    files.table(0, 40, keep_log=True)
    files.log(40, 75)
    assert found(files) == 75
