"""Tests of the contest with SeaweedMQ's peers: its statistics, its choice of participants, and one tiny real run."""

import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.contest.errors import Failed, Missing
from benchmarks.contest.feed import CHUNK_RECORDS, Feed, Schedule, due_ns
from benchmarks.contest.kafka.server import KafkaServer
from benchmarks.contest.main import main
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.contest.redis.server import RedisServer
from benchmarks.contest.results import Failure, Results, Sample, read
from benchmarks.contest.suites import CONSUMING, DATASETS, PUBLISHING
from benchmarks.contest.systems import OURS, SYSTEMS, Way
from benchmarks.contest.table import BEGIN, END, ROWS, markdown, put
from tests.support import contest as work

pytestmark = pytest.mark.deep

ROOT = Path(__file__).parents[1]
README = ROOT / "benchmarks" / "README.md"
COMMITTED = ROOT / "benchmarks" / "results" / "peers.json"


def results(*samples: Sample, skipped: dict[str, str] | None = None) -> Results:
    versions = {name: name for name in dict.fromkeys(sample.system for sample in samples)}
    return Results("2026-11-23", "2 cores", False, versions, skipped or {}, list(samples))


def rates(system: str, call: str, *records_per_s: float) -> list[Sample]:
    return [
        Sample(turn, system, "publish 1 KB", call, {"records_per_s": rate})
        for turn, rate in enumerate(records_per_s, start=1)
    ]


def test_the_table_of_the_readme_is_what_the_committed_run_says() -> None:
    text = README.read_text()
    assert put(text, markdown(read(COMMITTED))) == text


@pytest.mark.parametrize(
    ("samples", "row"),
    [
        pytest.param(  # the machine was busy in the third round, which hit both alike
            [*rates(OURS, "send", 300e3, 330e3, 100e3), *rates("kafka", "produce", 200e3, 220e3, 80e3)],
            "publish 1 KB, one by one, records/s | 300,000 (100,000..330,000) | 200,000 (80,000..220,000) | 1.50",
            id="medians and spreads",
        ),
        pytest.param(
            [Sample(1, name, "latency", "", {"p99_ms": p99_ms}) for name, p99_ms in ((OURS, 9.0), ("kafka", 4.5))],
            "due to delivered at 10,000 records/s, p99, ms | 9 | 4.5 | **0.50**",
            id="less is better of times, and ours behind is shown too",
        ),
        pytest.param(
            [
                *rates(OURS, "send_table", 600e3),
                *rates("kafka", "produce", 200e3),
                *rates("kafka", "produce_batch", 300e3),
                *rates("redis", "xadd", 400e3),
            ],
            "publish 1 KB, many at once, records/s | 600,000 | 300,000 `produce_batch` | 2.00 | 400,000 | 1.50",
            id="the best call of each peer",
        ),
        pytest.param(
            [*rates(OURS, "send", 900e3, 200e3), replace(rates("kafka", "produce", 100e3)[0], turn=2)],
            "publish 1 KB, one by one, records/s | 550,000 (200,000..900,000) | 100,000 | 2.00",
            id="rounds of one side are not compared",
        ),
        pytest.param(
            [*rates(OURS, "send", 100e3), *rates("redis", "xadd", 50e3)],
            "publish 1 KB, one by one, stored once in spite of retries, records/s | 100,000 | - | -",
            id="a peer that cannot do it has no figure",
        ),
    ],
)
def test_a_row_compares_ours_with_each_peer(samples: list[Sample], row: str) -> None:
    assert f"| {row} |" in markdown(results(*samples)).splitlines()


def test_the_reader_is_told_who_did_not_take_part_and_what_failed() -> None:
    found = results(*rates(OURS, "send", 1.0), skipped={"redis": "no redis-server on PATH"})
    found.failures.append(Failure(2, OURS, "latency", "consume took longer than 400 s"))
    text = markdown(found)
    assert "Redis Streams did not take part: no redis-server on PATH." in text
    assert "Failed: SeaweedMQ, latency, round 2: consume took longer than 400 s" in text


def test_the_table_stands_between_the_marks_and_nothing_else_changes() -> None:
    once = put(f"before\n{BEGIN}\nold\n{END}\nafter\n", "new")
    assert (once, put(once, "new")) == (f"before\n{BEGIN}\nnew\n{END}\nafter\n", once)
    for text in ("neither", f"{BEGIN} alone", f"{END} alone"):
        with pytest.raises(ValueError, match="there is no"):
            put(text, "new")


def test_every_measure_is_shown() -> None:
    shown = {(one.measure, one.way) for one in ROWS if one.figure == "records_per_s"}
    run = {(f"publish {one.name}", way) for one in DATASETS for way in one.publish}
    run |= {(f"consume {one.name}", way) for one in DATASETS for way in one.consume}
    assert shown == run | {("durable publish", Way.ONE_BY_ONE)}
    assert {one.measure for one in ROWS} >= {"latency", "durable latency", "topics", "startup"}


def test_ours_can_do_everything_and_each_peer_publishes_and_consumes() -> None:
    assert set(SYSTEMS[OURS].calls) == set(Way)
    for system in SYSTEMS.values():
        assert system.calls_for(PUBLISHING)
        assert system.calls_for(CONSUMING)
    assert SYSTEMS["kafka"].calls_for(PUBLISHING) == ("produce", "produce, idempotent", "produce_batch")


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = results(*rates(OURS, "send", 1.5, 2.5), skipped={"kafka": "no java on PATH"})
    for failures in ([], [Failure(1, "kafka", "start", 'said "no"\nand ended')]):
        found.failures = failures
        found.write(tmp_path / "peers.json")
        assert read(tmp_path / "peers.json") == found


def test_who_lacks_a_program_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="no redis-server on PATH"):
        RedisServer.equip()
    assert main(["--systems", "redis", "--json", str(tmp_path / "peers.json")]) == 0
    assert "Redis Streams did not take part: no redis-server on PATH." in capsys.readouterr().out


def test_without_java_or_maven_nothing_is_half_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    jars, programs = tmp_path / "cache" / "kafka", tmp_path / "bin"
    programs.mkdir()
    monkeypatch.setattr("benchmarks.contest.kafka.server.JARS", jars)
    monkeypatch.setattr("benchmarks.contest.kafka.server.require_module", lambda name: None)
    monkeypatch.setenv("PATH", str(programs))
    for name, body, said in (
        ("other", "", "no java on PATH"),
        ("java", """echo 'openjdk version "11.0.2" 2019-01-15' >&2""", r"needs Java 17, and java is 11\.0\.2"),
        ("java", """echo 'openjdk version "17.0.15" 2025-04-15' >&2""", "no mvn on PATH"),
        ("mvn", "echo '[ERROR] no answer'; exit 1", r"Maven can ?not download Kafka 4[.0-9]+: \[ERROR\] no answer"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{body}\n")
        (programs / name).chmod(0o755)
        with pytest.raises(Missing, match=said):
            KafkaServer.equip()
    assert list(jars.parent.iterdir()) == []


def test_a_feed_hands_out_what_it_counts_and_at_least_once() -> None:
    feed = Feed(10, 0.0, 7)
    (chunk,) = list(feed)
    assert (len(chunk.values), len(chunk.keys), feed.count) == (7, 7, 7)
    assert ({len(value) for value in chunk.values}, {len(key) for key in chunk.keys}) == ({10}, {16})
    assert len({value for chunk in feed.chunks for value in chunk.values}) == sum(len(c.values) for c in feed.chunks)


def test_a_schedule_is_an_open_loop() -> None:
    schedule = Schedule(records_per_s=10_000, record_bytes=100, seconds=0.2)
    handed: list[bytes] = []
    for number, due in enumerate(schedule):
        assert all(due_ns(record) <= time.monotonic_ns() for record in due)
        assert len(due) <= CHUNK_RECORDS
        handed += due
        if number == 0:
            time.sleep(0.05)  # delayed
    assert len(handed) == schedule.count == 2_000
    assert {len(record) for record in handed} == {100}
    dues = sorted({due_ns(record) for record in handed})
    assert len(dues) == 200, "ten records a millisecond"
    assert all(abs(after - before - 1e6) <= 1 for before, after in pairwise(dues)), "a delay changes nothing"
    assert max(schedule.late_ns) >= 30e6


def test_work_in_a_process_of_its_own_returns_its_figures() -> None:
    ready = SPAWN.Event()
    with ClientProcess(work.pid_once_ready, ready=ready) as process:
        process.expect(ready)
        assert process.result(30.0)["pid"] > 0


@pytest.mark.parametrize(
    ("piece", "timeout_s", "said"),
    [
        (work.refused, 30.0, "refused: ValueError: 3 records stored where 4 were published"),
        (work.ended, 30.0, "ended ended with exit status 3"),
        (work.stuck, 0.0, "stuck took longer than 0 s"),
    ],
)
def test_work_that_does_not_succeed_says_why(piece: "work.Piece", timeout_s: float, said: str) -> None:
    with ClientProcess(piece) as process, pytest.raises(Failed, match=said):
        process.result(timeout_s)


@pytest.mark.integration
def test_a_quick_run_of_ours_alone_measures_and_renders(tmp_path: Path) -> None:
    found, page = tmp_path / "peers.json", tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    command = [sys.executable, "-m", "benchmarks.peers", "--quick", "--systems", OURS]
    command += ["--suites", "startup,topics,latency", "--directory", str(tmp_path)]
    command += ["--json", str(found), "--markdown", str(page)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    assert page.read_text() == f"{BEGIN}\n{markdown(read(found))}\n{END}\n"
    measures = {sample.measure for sample in read(found).samples}
    assert measures == {"startup", "topics", "latency"}  # before the last, it publishes and consumes as warm-up
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.md", "peers.json"], "nothing is left behind"
