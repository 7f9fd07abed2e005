"""Parsing of option values."""

import math
import tomllib
from collections.abc import Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import typer

from benchmarks.demo import cluster as demo
from seaweedmq.broker import broker as server
from seaweedmq.cli.commands.topics import with_auto_compact
from seaweedmq.cli.options import changed_configs, duration_s, parse_start, records_per_s, size_bytes
from seaweedmq.cli.records.schema import read_schema
from seaweedmq.cli.servers import local_cluster
from seaweedmq.cli.servers.config_file import read_config
from seaweedmq.cli.servers.settings_reference import DEPLOY, write_file, write_page
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import SETTINGS, BrokerConfig

TIMES = {
    "time:2026-01-31T12:00:00Z": datetime(2026, 1, 31, 12, tzinfo=UTC),
    "time:2026-01-31": datetime(2026, 1, 31, tzinfo=UTC),
    "time:2026-01-31T13:00:00+01:00": datetime(2026, 1, 31, 13, tzinfo=timezone(timedelta(hours=1))),
}


DURATIONS = {"7d": 604_800, "12h": 43_200, "1.5m": 90, "30": 30, "250ms": 0.25, "none": 0}
SIZES = {"1000": 1000, "64MiB": 64 << 20, "10GiB": 10 << 30, "none": 0}
RATES = {"5000": 5000, "0.5": 0.5, "none": 0}


@pytest.mark.parametrize(
    ("parse", "values", "wrong", "remedy"),
    [
        (duration_s, DURATIONS, ["", "7 d", "-1s", "d", "7y", "1e3", "\u0667d"], "write it like 7d"),
        (size_bytes, SIZES, ["", "64MB", "-1", "1.5GiB"], "10GiB"),
        (records_per_s, RATES, ["", "-1", "1e3", "5k", "nan", "\u0667"], "write it like 5000"),
        (
            parse_start,
            {"earliest": "earliest", "latest": "latest", "offset:12": 12, **TIMES},
            ["", "first", "offset:", "offset:-1", "offset:x", "time:", "time:noon", "latest:1"],
            "start",
        ),
    ],
)
def test_options(parse: Callable[[str], object], values: dict[str, object], wrong: list[str], remedy: str) -> None:
    assert {text: parse(text) for text in values} == values
    for text in wrong:
        with pytest.raises(typer.BadParameter, match=remedy):
            parse(text)


def test_settings_by_name_are_set_one_by_one_and_removed() -> None:
    before = {"a": "1", "segment.ms": "5"}
    assert changed_configs(before, ["segment.ms=6", "b=x=y", "a="]) == {"segment.ms": "6", "b": "x=y"}
    assert changed_configs(before, ["c="]) == before
    for text in ("", "a", "=1"):
        with pytest.raises(typer.BadParameter, match=r"is not NAME=VALUE: write it like segment\.ms=60000"):
            changed_configs(before, [text])


def test_settings_come_from_the_file_and_options_win(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("lease_ttl_s = 3\nframe_bytes_max = 1_048_576\n")
    config = read_config(path, lease_ttl_s=2.0)
    assert (config.lease_ttl_s, config.frame_bytes_max, read_config(path).lease_ttl_s) == (2.0, 1 << 20, 3)
    assert read_config(None, lease_ttl_s=None) == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lease_ttl = 3", "unknown setting 'lease_ttl': choose one of .*lease_ttl_s"),
        ("lease_ttl_s = ", "is not TOML"),
        ("lease_ttl_s = 0", "lease_ttl_s = 0 is not a number above 0"),
        ("lease_ttl_s = true", "is not a number above 0"),
        ("frame_bytes_max = 1.5", "is not a whole number above 0"),
        ("producer_idle_s = 600", r"broker\.toml: producer_idle_s = 600 is too short: give more than 600"),
        ("producer_idle_s = 3_601", "producer_idle_s = 3601 is too long: give at most 3600"),
        ("producer_retention_s = 600", "producer_retention_s = 600 is too short: give more than 600"),
        ("segment_retention_s = 60", "segment_retention_s = 60 is too short: give more than 600"),
        ("frame_bytes_max = '1'", "is not a whole number above 0"),
        ("kafka_listen = 9092", "kafka_listen = 9092 is not a string"),
        ("kafka_auto_create = 1", "kafka_auto_create = 1 is not true or false"),
        ("kafka_advertise = 'a:1'", "kafka_advertise needs kafka_listen: set both"),
        ("kafka_namespace = 'a/b'", "kafka_namespace 'a/b' is not allowed"),
        ("log_roll_age_s = nan", "is not a number above 0"),
    ],
)
def test_settings_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "broker.toml").write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        read_config(tmp_path / "broker.toml")


def test_settings_without_a_file_are_checked_as_well() -> None:
    with pytest.raises(InvalidArgument, match=r"^settings: producer_idle_s = 60 is too short"):
        read_config(None, producer_idle_s=60.0)
    with pytest.raises(InvalidArgument, match=r"^settings: producers_max is 0: give from 1"):
        read_config(None, producers_max=0)


def test_every_number_has_a_range_in_files_and_in_code(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    for setting in filter(lambda setting: setting.is_number, SETTINGS.values()):
        name, least, most = setting.name, setting.least, setting.most
        assert 0 <= least < most < math.inf
        for value in (least, most):
            assert getattr(replace(BrokerConfig(), **{name: value}), name) == value  # type: ignore[arg-type]
        for value in (-1, least - 0.001, most + 1, math.nan):
            with pytest.raises(InvalidArgument, match=rf"^{name} is .*: give from {least:,} to {most:,}$"):
                replace(BrokerConfig(), **{name: value})  # type: ignore[arg-type]
        file.write_text(f"{name} = {most}")
        assert getattr(read_config(file), name) == most
        file.write_text(f"{name} = {most + 1}")
        with pytest.raises(InvalidArgument, match=rf"broker\.toml: {name} (is|=) .*: give .*({most:,}|{most})$"):
            read_config(file)


def test_a_local_cluster_gives_its_brokers_time_to_write_out_what_they_follow() -> None:
    assert local_cluster.STOP_TIMEOUT_S > server.LEAVE_TIMEOUT_S + server.REPLICAS_TIMEOUT_S
    assert demo.STOP_TIMEOUT_S > local_cluster.STOP_TIMEOUT_S


def test_the_reference_of_settings_is_current() -> None:
    command = "run `python -m seaweedmq.cli.servers.settings_reference`"
    assert (DEPLOY / "SETTINGS.md").read_text() == write_page(), command
    assert (DEPLOY / "broker.toml").read_text() == write_file(), command
    assert read_config(DEPLOY / "broker.toml") == BrokerConfig()
    assert tomllib.loads(write_file()).keys() == SETTINGS.keys() == {field.name for field in fields(BrokerConfig)}


def test_auto_compact_is_a_setting_by_name_and_not_to_have_it_is_to_leave_it_out() -> None:
    on = changed_configs({}, with_auto_compact(["segment.ms=60000"], True))
    assert on == {"segment.ms": "60000", "seaweedmq.auto.compact": "true"}
    assert changed_configs(on, with_auto_compact(None, None)) == on
    assert changed_configs(on, with_auto_compact(None, False)) == {"segment.ms": "60000"}


SCHEMA = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", tz="UTC")), ("price", pa.decimal128(10, 2))])


def test_schemas_from_every_kind_of_file(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text('{"id": "int64", "at": "timestamp[us, UTC]", "price": "decimal128(10, 2)"}')
    pa.parquet.write_table(SCHEMA.empty_table(), tmp_path / "s.parquet")
    (tmp_path / "s.arrows").write_bytes(SCHEMA.serialize())
    with pa.OSFile(str(tmp_path / "s.arrow"), "wb") as out, pa.ipc.new_file(out, SCHEMA):
        pass
    for path in sorted(tmp_path.iterdir()):
        assert read_schema(path).equals(SCHEMA), path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "does not hold a schema"),
        ("id int64", "does not hold a schema"),
        ("{", "is not JSON"),
        ('{"id": "integer"}', "column 'id' has the type 'integer'"),
        ('{"id": 64}', "column 'id' has the type 64"),
    ],
)
def test_schemas_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s").write_text(text)
    with pytest.raises(InvalidArgument, match=message):
        read_schema(tmp_path / "s")
