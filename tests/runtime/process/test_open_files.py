"""Limits that follow from the number of files that a process may open."""

import logging
import resource

import pytest

from seaweedmq.runtime.process.open_files import files_max, within_open_files


def test_a_setting_above_its_part_is_lowered_and_the_log_has_the_remedy(caplog: pytest.LogCaptureFixture) -> None:
    assert within_open_files("connections_max", 250, 1_000) == 250
    assert within_open_files("connections_max", 1_000_000, None) == 1_000_000
    assert not caplog.records
    assert within_open_files("connections_max", 251, 1_000) == 250
    assert within_open_files("kafka_cursors_max", 64, 160, part=16) == 10
    assert within_open_files("kafka_cursors_max", 64, 3) == 1
    assert "connections_max = 251 is lowered to 250, since this process may open 1000 files" in caplog.text
    assert "(ulimit -Hn, LimitNOFILE) to 1004" in caplog.text


@pytest.mark.parametrize(("limit", "level"), [(3_996, logging.WARNING), (4_000, logging.DEBUG)])
def test_a_limit_that_suffices_for_most_is_no_warning(limit: int, level: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    within_open_files("connections_max", 10_000, limit)
    assert [record.levelno for record in caplog.records] == [level]


def test_the_limit_is_the_one_that_holds_now() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))
    try:
        assert files_max() == 200
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
