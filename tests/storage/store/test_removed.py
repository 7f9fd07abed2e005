"""Records of removals: the highest offset of a segment holds, and one that rises needs no room."""

import errno
import os
from pathlib import Path

import pytest

from seaweedmq.codec.paths import removed_dir
from seaweedmq.model.id_ranges import IdRanges
from seaweedmq.storage.directory_place import DirectoryPlace
from seaweedmq.storage.store.removed import record_removed, scan_removed, sweep_removed
from tests.support.segments import NAME

UID = 7


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / removed_dir(NAME)).iterdir())


def test_the_highest_offset_of_a_segment_holds_and_the_one_before_it_stays(tmp_path: Path) -> None:
    assert scan_removed(DirectoryPlace(tmp_path), NAME, UID) == {}
    for offset in (10, 30, 20, 40, 40):
        record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: offset, 1: 5})
    assert scan_removed(DirectoryPlace(tmp_path), NAME, UID) == {0: 40, 1: 5}
    assert names(tmp_path) == [f"00000000-{30:020d}-7", f"00000000-{40:020d}-7", f"00000001-{5:020d}-7"]


def test_a_topic_of_another_uid_has_records_of_its_own(tmp_path: Path) -> None:
    record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: 10})
    record_removed(DirectoryPlace(tmp_path), NAME, UID + 1, {0: 3})
    assert (
        scan_removed(DirectoryPlace(tmp_path), NAME, UID),
        scan_removed(DirectoryPlace(tmp_path), NAME, UID + 1),
    ) == ({0: 10}, {0: 3})


def test_records_of_pruned_segments_go(tmp_path: Path) -> None:
    record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: 10, 1: 20})
    sweep_removed(DirectoryPlace(tmp_path), NAME, IdRanges().including([0]))
    assert scan_removed(DirectoryPlace(tmp_path), NAME, UID) == {1: 20}


def test_a_record_rises_on_a_storage_without_free_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for offset in (10, 20):
        record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: offset})

    def no_inode(*args: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "touch", no_inode)
    record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: 30})
    assert scan_removed(DirectoryPlace(tmp_path), NAME, UID) == {0: 30}
    with pytest.raises(OSError, match="No space"):
        record_removed(DirectoryPlace(tmp_path), NAME, UID, {1: 1})


def test_a_record_rises_although_another_renamed_the_lower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for offset in (10, 20):
        record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: offset})
    rename = Path.rename

    def taken(path: Path, target: Path) -> Path:
        rename(path, target.with_name(f"00000000-{25:020d}-7"))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", taken)
    record_removed(DirectoryPlace(tmp_path), NAME, UID, {0: 30})
    assert scan_removed(DirectoryPlace(tmp_path), NAME, UID) == {0: 30}
