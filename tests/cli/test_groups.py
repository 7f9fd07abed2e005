"""Groups on a real cluster: `subscribe --group` and their administration."""

import contextlib
import json
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.support.commands import COMMAND, Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]  # a command takes seconds on a busy machine

RAW = ("--format", "raw")


def read(cluster: Cluster, topic: str, group: str, *options: str) -> list[str]:
    return cluster.ok("subscribe", topic, "--group", group, *RAW, *options).split()


def describe(cluster: Cluster, group: str) -> dict[str, Any]:
    described: dict[str, Any] = json.loads(cluster.ok("group", "describe", group, "--output", "json"))
    return described


@contextlib.contextmanager
def following(cluster: Cluster, topic: str, group: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a member that reads until it is interrupted."""
    command = [*COMMAND, "--bootstrap", cluster.addresses, "subscribe", topic, "--group", group, "--follow", *RAW]
    member = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield member
    finally:
        member.kill()
        member.communicate()


def interrupt(member: "subprocess.Popen[bytes]", number: int = signal.SIGINT) -> tuple[int, bytes, bytes]:
    """Send Ctrl-C or another signal; return exit status, remaining output, and stderr."""
    member.send_signal(number)
    printed, error = member.communicate(timeout=30)
    return member.returncode, printed, error


@pytest.mark.deep
def test_a_group_goes_on_where_it_stopped(cluster: Cluster) -> None:
    topic = "group/goes-on"
    cluster.ok("topic", "create", topic)
    cluster.ok("publish", topic, stdin=b"".join(b"%d\n" % n for n in range(10)))
    assert read(cluster, topic, "first", "--limit", "4") == ["0", "1", "2", "3"]
    assert read(cluster, topic, "first") == ["4", "5", "6", "7", "8", "9"]
    assert read(cluster, topic, "first") == []
    cluster.ok("publish", topic, stdin=b"10\n")
    assert (read(cluster, topic, "first"), len(read(cluster, topic, "second"))) == (["10"], 11)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_member_commits_what_it_printed_and_leaves(cluster: Cluster, number: int, status: int) -> None:
    topic, group = f"group/stopped-{status}", f"stopped-{status}"
    cluster.ok("topic", "create", topic)
    with following(cluster, topic, group) as member:
        assert member.stdout is not None
        for line in (b"one\n", b"two\n"):
            cluster.ok("publish", topic, stdin=line)
            assert member.stdout.readline() == line
        assert interrupt(member, number) == (status, b"", b"")
    described = describe(cluster, group)
    assert (described["lag_records"], described["topics"][0]["members"]) == (0, [])
    assert read(cluster, topic, group) == []


def test_a_group_is_described_with_its_lag(cluster: Cluster) -> None:
    topic = "group/lag"
    cluster.ok("topic", "create", topic)
    cluster.ok("publish", topic, stdin=b"x\n" * 10)
    assert len(read(cluster, topic, "lagging", "--limit", "3")) == 3
    described = describe(cluster, "lagging")
    assert (described["group"], described["lag_records"]) == ("lagging", 7)
    assert described["lag_s"] > 0
    [part] = described["topics"]
    assert (part["topic"], part["start"], part["members"]) == (topic, "earliest", [])
    [segment] = part["segments"]
    assert (segment["committed"], segment["end_offset"], segment["owner"]) == (3, 10, None)
    table = cluster.ok("group", "describe", "lagging")
    assert "no members" in table
    assert "lag_records" in table

    listed = json.loads(cluster.ok("group", "list", "--output", "json"))
    assert ("lagging", topic, 0) in {(g["group"], g["topic"], g["members"]) for g in listed}
    assert any(line.startswith("lagging ") for line in cluster.ok("group", "list").splitlines())

    assert len(read(cluster, topic, "lagging")) == 7
    described = describe(cluster, "lagging")
    assert (described["lag_records"], described["lag_s"]) == (0, 0.0)


@pytest.mark.deep
def test_a_group_is_reset(cluster: Cluster) -> None:
    topic = "group/reset"
    cluster.ok("topic", "create", topic)
    cluster.ok("publish", topic, stdin=b"a\nb\n")
    time.sleep(0.01)
    moment = datetime.now(UTC).isoformat()
    cluster.ok("publish", topic, stdin=b"c\nd\n")
    assert read(cluster, topic, "again") == ["a", "b", "c", "d"]
    for to, expected in (
        ("earliest", ["a", "b", "c", "d"]),
        ("offset:1", ["b", "c", "d"]),
        (f"time:{moment}", ["c", "d"]),
        ("latest", []),
    ):
        assert "again" in cluster.ok("group", "reset", "again", topic, "--to", to)
        assert read(cluster, topic, "again") == expected


@pytest.mark.deep
def test_a_group_with_members_is_reset_and_deleted_only_by_force(cluster: Cluster) -> None:
    topic = "group/force"
    cluster.ok("topic", "create", topic)
    cluster.ok("publish", topic, stdin=b"a\n")
    with following(cluster, topic, "busy") as member:
        assert member.stdout is not None
        assert member.stdout.readline() == b"a\n"
        for command in (["group", "reset", "busy", topic, "--to", "earliest"], ["group", "delete", "busy"]):
            assert "member" in cluster.run(*command).failure
        reset = cluster.ok("group", "reset", "busy", topic, "--to", "earliest", "--force", "--output", "json")
        assert json.loads(reset)["group"] == "busy"
        assert member.stdout.readline() == b"a\n"  # it continues from there
        cluster.ok("group", "delete", "busy", "--force")
        assert member.wait(30) == 1  # it reports that it was removed
        assert member.stderr is not None
        assert b"busy" in member.stderr.read()
    assert cluster.run("group", "describe", "busy").status == 1


@pytest.mark.deep
def test_a_deleted_group_begins_anew(cluster: Cluster) -> None:
    topic = "group/deleted"
    cluster.ok("topic", "create", topic)
    cluster.ok("publish", topic, stdin=b"a\n")
    assert (read(cluster, topic, "gone"), cluster.ok("group", "delete", "gone")) == (["a"], "deleted gone\n")
    assert read(cluster, topic, "gone") == ["a"]
    assert json.loads(cluster.ok("group", "delete", "gone", "--output", "json")) == {"deleted": "gone"}


def test_bad_input_says_what_is_wrong(cluster: Cluster) -> None:
    for arguments in (
        ["group", "reset", "absent", "group/absent", "--to", "earliest"],
        ["group", "describe", "absent", "--kind", "kafka"],
        ["group", "delete", "ab/sent", "--kind", "native"],
        ["subscribe", "group/absent", "--group", "ab sent"],
    ):
        done = cluster.run(*arguments)
        assert (done.status, done.stdout) == (1, b""), arguments
        assert "absent" in done.error or "not allowed" in done.error


def test_a_name_that_only_kafkas_groups_may_have_is_one_of_theirs(cluster: Cluster) -> None:
    for command in ("describe", "delete"):
        assert "there is no Kafka group 'no body'" in cluster.run("group", command, "no body").error
