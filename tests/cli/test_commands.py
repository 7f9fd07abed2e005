"""The command line as a new user would try it, on a real cluster."""

import json
import os
import signal
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.support.commands import COMMAND, Cluster, running_cluster

pytestmark = pytest.mark.integration


def records(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.deep
def test_a_million_numbers_go_in_and_come_back_in_order(cluster: Cluster) -> None:
    numbers = b"".join(b"%d\n" % i for i in range(1, 1_000_001))
    cluster.ok("topic", "create", "test/numbers")
    assert cluster.ok("publish", "test/numbers", stdin=numbers).startswith("published 1000000 records to test/numbers")
    assert cluster.run("subscribe", "test/numbers", "--format", "raw").stdout == numbers


def test_lines_are_records_byte_for_byte(cluster: Cluster) -> None:
    lines = b"first\n\n \xff\x00 \r\nno newline at the end"
    cluster.ok("topic", "create", "test/lines")
    assert "published 4 records" in cluster.ok("publish", "test/lines", stdin=lines)
    assert cluster.run("subscribe", "test/lines", "--format", "raw").stdout == lines + b"\n"
    printed = records(cluster.ok("subscribe", "test/lines"))
    assert [r["value"] for r in printed] == ["first", "", "IP8AIA0=", "no newline at the end"]
    assert [r.get("value_encoding") for r in printed] == [None, None, "base64", None]
    assert [(r["segment"], r["offset"], r["key"], r["headers"]) for r in printed] == [
        (0, n, None, {}) for n in (0, 1, 2, 3)
    ]


def test_jsonl_round_trips_from_topic_to_topic(cluster: Cluster) -> None:
    made = json.loads(cluster.ok("topic", "create", "copy/a", "copy/b", "--output", "json"))
    assert [topic["topic"] for topic in made] == ["copy/a", "copy/b"]
    text = (
        '{"key": "k", "value": "grüße", "headers": {"h": "v"}, "timestamp": "2026-01-31T12:00:00.5Z"}\n'
        '{"key": "/w==", "key_encoding": "base64", "value": null, "timestamp": "2026-01-31T12:00:01Z"}\n'
        '{"value": "v", "headers": [["hop", "1"], ["id", "x"], ["hop", "2"]], "timestamp": "2026-01-31T12:00:01Z"}\n'
    )
    cluster.ok("publish", "copy/a", "--format", "jsonl", stdin=text.encode())
    first = cluster.ok("subscribe", "copy/a")
    cluster.ok("publish", "copy/b", "--format", "jsonl", stdin=first.encode())
    assert cluster.ok("subscribe", "copy/b") == first


@pytest.mark.deep
def test_tables_give_a_topic_its_columns(cluster: Cluster, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "name": ["a", "b", None]})
    pa.parquet.write_table(table, tmp_path / "t.parquet")
    with pa.OSFile(str(tmp_path / "t.arrow"), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table)
    cluster.ok("topic", "create", "test/table")
    for kind, stdin in (
        ("parquet", b""),
        ("arrow", b""),
        ("csv", b"id,name\n1,a\n2,b\n3,\n"),
        ("jsonl", b'{"id": 4}\n'),
    ):
        source = ["--from", str(tmp_path / f"t.{kind}")] if not stdin else []
        key = ["--key", "id"] if kind != "jsonl" else []
        cluster.ok("publish", "test/table", "--format", kind, *source, *key, stdin=stdin)
    printed = records(cluster.ok("subscribe", "test/table"))
    assert [r["value"] for r in printed[:3]] == table.to_pylist()
    assert ([r["key"] for r in printed[:3]], printed[-1]["value"]) == (["1", "2", "3"], {"id": 4, "name": None})
    described = json.loads(cluster.ok("topic", "describe", "test/table", "--output", "json"))
    assert described["columns"] == ["id: int64", "name: string"]
    assert "'size'" in cluster.run("publish", "test/table", "--format", "csv", stdin=b"id,size\n1,2\n").failure
    assert "the topic has a schema" in cluster.run("publish", "test/table", stdin=b"line\n").failure


@pytest.mark.deep
def test_starts_and_limits(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "test/starts")
    cluster.ok("publish", "test/starts", stdin=b"a\nb\n")
    time.sleep(0.01)
    moment = datetime.now(UTC).isoformat()
    cluster.ok("publish", "test/starts", stdin=b"c\nd\n")

    def values(*options: str) -> list[str]:
        return cluster.ok("subscribe", "test/starts", "--format", "raw", *options).split()

    assert values() == values("--start", "earliest") == ["a", "b", "c", "d"]
    assert (values("--start", "latest"), values("--start", "offset:1", "--limit", "2")) == ([], ["b", "c"])
    assert (values("--start", f"time:{moment}"), values("--limit", "1")) == (["c", "d"], ["a"])


def test_follow_prints_what_comes_until_ctrl_c(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "test/follow")
    command = [*COMMAND, "--bootstrap", cluster.addresses, "subscribe", "test/follow", "--follow", "--format", "raw"]
    follower = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert follower.stdout is not None
        for line in (b"one\n", b"two\n"):
            cluster.ok("publish", "test/follow", stdin=line)
            assert follower.stdout.readline() == line
        follower.send_signal(signal.SIGINT)
        rest, error = follower.communicate(timeout=20)
        assert (follower.returncode, rest, error) == (130, b"", b"")
    finally:
        follower.kill()
        follower.wait()


def test_ctrl_c_while_publishing_ends_quietly(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "test/interrupted")
    command = [*COMMAND, "--bootstrap", cluster.addresses, "publish", "test/interrupted"]
    publisher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert publisher.stdin is not None
        publisher.stdin.write(b"one\n")
        publisher.stdin.flush()
        following = ["subscribe", "test/interrupted", "--follow", "--limit", "1", "--format", "raw"]
        assert cluster.ok(*following) == "one\n"
        publisher.send_signal(signal.SIGINT)
        assert publisher.wait(20) == 130
        assert publisher.stderr is not None
        assert publisher.stderr.read() == b""
    finally:
        publisher.kill()
        publisher.communicate()


def test_a_reader_that_goes_away_ends_it_quietly(cluster: Cluster) -> None:
    """And the group keeps no more than a pipe had room for: records that were not written are not acknowledged. A
    container as a rule has no buffer.
    """
    cluster.ok("topic", "create", "test/pipe")
    cluster.ok("publish", "test/pipe", stdin=b"x" * 99 + b"\n" + b"y\n" * 500_000)
    subscribe = ["subscribe", "test/pipe", "--format", "raw", "--group", "pipe"]
    command = [*COMMAND, "--bootstrap", cluster.addresses, *subscribe]
    env = {**os.environ, "PYTHONUNBUFFERED": "1"}
    reader = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
    assert reader.stdout is not None
    assert reader.stderr is not None
    assert reader.stdout.readline() == b"x" * 99 + b"\n"
    reader.stdout.close()
    assert (reader.stderr.read(), reader.wait(20)) == (b"", 0)
    (topic,) = json.loads(cluster.ok("group", "describe", "pipe", "--output", "json"))["topics"]
    assert topic["segments"][0]["committed"] <= 2 + (64 << 10) // 2


@pytest.mark.deep
def test_settings_by_name_are_kept_shown_changed_and_removed(cluster: Cluster) -> None:
    topic = "shop/by-name"
    cluster.ok("topic", "create", topic, "--config", "segment.ms=60000", "--config", "preallocate=true")
    assert "segment.ms=60000" in cluster.ok("topic", "describe", topic)
    altered = ["topic", "alter", topic, "--config", "preallocate=", "--config", "max.message.bytes=5000"]
    changed = json.loads(cluster.ok(*altered, "--output", "json"))
    assert changed["configs"] == {"max.message.bytes": "5000", "segment.ms": "60000"}
    cluster.ok("topic", "alter", topic, "--retention", "7d")
    described = json.loads(cluster.ok("topic", "describe", topic, "--output", "json"))
    assert (described["configs"], described["retention_s"]) == (changed["configs"], 604_800)
    for refused, sentence in (
        (["topic", "create", "shop/x", "--config", "segment.ms=soon"], "give a whole number from 1 on"),
        (["topic", "alter", topic, "--config", "retention.ms=5"], "set retention_s (--retention) instead"),
        (["topic", "alter", topic, "--config", "min.insync.replicas=2"], "so nothing could be produced"),
    ):
        assert sentence in cluster.run(*refused).failure
    done = cluster.run("topic", "alter", topic, "--config", "nonsense")
    assert done.status == 2
    assert "is not NAME=VALUE" in done.stderr


def test_topics_from_creation_to_deletion(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"id": "int64", "at": "timestamp[us, UTC]"}')
    options = ["--segments", "4", "--durability", "replicated", "--scaling", "fixed", "--retention", "7d"]
    options += ["--retention-bytes", "1000000", "--schema", str(tmp_path / "schema.json")]
    assert cluster.ok("topic", "create", "shop/orders", *options) == "created shop/orders with 4 segments\n"
    described = json.loads(cluster.ok("topic", "describe", "shop/orders", "--output", "json"))
    assert (described["durability"], described["scaling"]) == ("replicated", "fixed")
    assert (described["retention_s"], described["retention_bytes"]) == (604_800, 1_000_000)
    assert described["columns"] == ["id: int64", "at: timestamp[us, tz=UTC]"]
    assert "but neither written nor read: it has columns" in described["kafka"]
    assert [s["slots"] for s in described["segments"]] == [[i << 14, (i + 1) << 14] for i in range(4)]
    assert {address for s in described["segments"] for address in s["brokers"]} <= set(cluster.addresses.split(","))

    altered = ["topic", "alter", "shop/orders", "--retention", "none", "--durability", "stored", "--output", "json"]
    changed = json.loads(cluster.ok(*altered))
    assert (changed["retention_s"], changed["durability"]) == (None, "stored")
    assert changed["retention_bytes"] == 1_000_000

    assert "shop/orders" in cluster.run("topic", "create", "shop/orders").failure
    table = cluster.ok("topic", "list")
    assert table.splitlines()[0].split()[:2] == ["topic", "durability"]
    assert any(line.startswith("shop/orders ") for line in table.splitlines())
    assert "65536" in cluster.ok("topic", "describe", "shop/orders")

    assert cluster.ok("topic", "delete", "shop/orders") == "deleted shop/orders\n"
    for command in (["topic", "describe"], ["topic", "delete"], ["publish"], ["subscribe"]):
        assert "shop/orders" in cluster.run(*command, "shop/orders").failure


def test_the_cluster_describes_itself(cluster: Cluster) -> None:
    status = json.loads(cluster.ok("cluster", "status", "--output", "json"))
    brokers = json.loads(cluster.ok("--output", "json", "cluster", "brokers"))
    leader = json.loads(cluster.ok("cluster", "leader", "--output", "json"))
    assert (
        {b["address"] for b in status["brokers"]}
        == {b["address"] for b in brokers}
        == set(cluster.addresses.split(","))
    )
    assert {b["pid"] for b in brokers} == set(cluster.pids)
    assert [b["broker"] for b in brokers if b["leader"]] == [leader["leader"]] == [status["leader"]]
    assert leader["address"] in cluster.addresses
    assert cluster.ok("cluster", "leader").split()[1] == leader["leader"]
    assert len(cluster.ok("cluster", "brokers").splitlines()) == 4
    assert cluster.ok("cluster", "status").startswith("leader ")


def test_options_may_stand_before_and_behind_the_command(cluster: Cluster) -> None:
    address = cluster.addresses.split(",")[2]
    before = cluster.run("--bootstrap", address, "--output", "json", "topic", "list")
    behind = cluster.run("topic", "list", "--bootstrap", address, "--output", "json")
    assert before.status == behind.status == 0
    assert before.text == behind.text


def test_a_broker_is_drained(tmp_path: Path) -> None:
    with running_cluster(tmp_path / "data", brokers=2) as cluster:
        cluster.ok("topic", "create", "test/drained", "--segments", "4")
        address = cluster.addresses.split(",")[0]
        assert json.loads(cluster.ok("cluster", "drain", address, "--output", "json")) == {"drained": address}
        brokers = json.loads(cluster.ok("cluster", "brokers", "--output", "json"))
        assert [(b["draining"], b["segments"]) for b in brokers if b["address"] == address] == [(True, 0)]
        assert cluster.ok("cluster", "drain", address).startswith(f"drained {address}: ")
        assert cluster.run("cluster", "drain", "127.0.0.1:1").status == 1


def test_subscribe_saves_values_to_files_named_after_their_keys(cluster: Cluster, tmp_path: Path) -> None:
    cluster.ok("topic", "create", "test/saved")
    lines = [{"key": "a/../b.txt", "value": "first"}, {"key": "a/../b.txt", "value": "second"}, {"value": "third"}]
    source = tmp_path / "records.jsonl"
    source.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    cluster.ok("publish", "test/saved", "--from", str(source), "--format", "jsonl")
    saved = tmp_path / "saved"
    subscribe = ("subscribe", "test/saved", "--group", "saving", "--save-to", str(saved))
    assert cluster.ok(*subscribe).splitlines() == ["a%2F..%2Fb.txt", "a%2F..%2Fb~0-1.txt", "record~0-2"]
    assert [path.read_text() for path in sorted(saved.iterdir())] == ["first", "second", "third"]
    assert cluster.ok(*subscribe) == "", "all were acknowledged"
    failed = cluster.run("subscribe", "test/saved", "--save-to", str(source))
    assert (failed.status, "give a folder that exists" in str(failed.stderr)) == (1, True)
