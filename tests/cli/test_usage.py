"""Wrong usage and unreachable clusters: exit status 2 and 1, one clear line, no traceback.

Most tests run in this process, since a process costs a second each: a few show that a process prints the same.
"""

import sys
from pathlib import Path

import pytest

from seaweedmq.cli import main
from tests.support.commands import Done, run
from tests.support.free_ports import free_ports


class Here:
    """Runner of commands in this process, which must fail before they start anything."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
        self._monkeypatch = monkeypatch
        self._captured = capfdbinary

    def run(self, *arguments: str) -> Done:
        self._monkeypatch.setattr(sys, "argv", ["seaweedmq", *arguments])
        with pytest.raises(SystemExit) as ended:
            main.run()
        stdout, stderr = self._captured.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, stdout, stderr.decode())


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Here:
    return Here(monkeypatch, capfdbinary)


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["topic", "create"],
        ["topic", "create", "a/b", "--segments", "0"],
        ["topic", "create", "a/b", "--durability", "maybe"],
        ["topic", "create", "a/b", "--retention", "soon"],
        ["topic", "alter", "a/b"],
        ["topic", "alter", "a/b", "--target-bytes", "fast"],
        ["topic", "create", "a/b", "--target-records", "-1"],
        ["segment", "split", "a/b"],
        ["segment", "split", "a/b", "first"],
        ["segment", "split", "a/b", "1", "--at", "half"],
        ["segment", "merge", "a/b", "1"],
        ["segment", "seal", "a/b", "-1"],
        ["segment", "move", "a/b", "1"],
        ["group", "describe"],
        ["group", "reset", "g", "a/b"],
        ["group", "reset", "g", "a/b", "--to", "first"],
        ["group", "delete"],
        ["publish", "a/b", "--format", "xml"],
        ["publish", "a/b", "--key", "id"],
        ["subscribe", "a/b", "--start", "yesterday"],
        ["subscribe", "a/b", "--limit", "0"],
        ["up", "--brokers", "0"],
        ["up", "--log-level", "verbose"],
        ["broker"],
        ["broker", "--etcd", "127.0.0.1:1", "--storage", "/tmp", "--log-level", "verbose"],
    ],
)
def test_wrong_usage_ends_with_status_2(here: Here, arguments: list[str]) -> None:
    done = here.run(*arguments)
    assert (done.status, done.stdout) == (2, b"")
    assert "Usage" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "name",
    ["", "orders", "shop/", "/orders", "a/b/c", "shop/..", "shop/" + "x" * 300, "shop/a\nb", "shop/größe", "a b/c"],
)
def test_a_topic_name_that_is_not_allowed_says_what_is(here: Here, name: str) -> None:
    error = here.run("topic", "describe", name).failure
    assert error.startswith("error: ")
    assert "NAMESPACE/NAME" in error or "A-Z a-z 0-9 . _ -" in error


def test_a_missing_file_is_named(here: Here) -> None:
    error = here.run("publish", "a/b", "--from", "/nowhere/records").failure
    assert error == "error: [Errno 2] No such file or directory: '/nowhere/records'"


def test_a_bad_bootstrap_is_named() -> None:
    assert "'nowhere' is not HOST:PORT" in run("--bootstrap", "nowhere", "topic", "list").failure


@pytest.mark.parametrize(
    "arguments",
    [["topic", "alter", "a/b"], ["topic", "describe", "orders"], ["publish", "a/b", "--from", "/nowhere/r"]],
)
def test_a_process_says_and_ends_with_the_same(here: Here, arguments: list[str]) -> None:
    there, done = run(*arguments), here.run(*arguments)
    assert (there.status, there.stdout, _error(there)) == (done.status, done.stdout, _error(done))


def _error(done: Done) -> list[str]:
    """Return the lines of the error, without the usage lines, which depend on the program's name."""
    return done.stderr.splitlines()[-3:]


def test_help_lists_every_command() -> None:
    done = run("--help")
    assert done.status == 0
    for command in ("up", "broker", "topic", "segment", "group", "publish", "subscribe", "cluster"):
        assert command in done.text


@pytest.mark.integration
def test_a_cluster_that_is_not_there_is_named() -> None:
    address = f"127.0.0.1:{free_ports(1)}"
    assert address in run("topic", "list", "--bootstrap", address).failure


@pytest.mark.integration
def test_a_broker_without_etcd_waits_and_then_says_so(tmp_path: Path) -> None:
    etcd = f"127.0.0.1:{free_ports(1)}"
    options = ["--etcd", etcd, "--etcd-timeout", "2", "--storage", str(tmp_path)]
    done = run("broker", *options, "--listen", f"127.0.0.1:{free_ports(1)}")
    assert done.status == 1
    waiting, failed = done.stderr.splitlines()
    assert waiting.startswith(f"waiting for etcd at {etcd}")
    assert failed.startswith(f"error: etcd at {etcd} did not answer within 2 s")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--storage", "/nowhere/at/all"], "/nowhere/at/all"),
        (["--storage", "s3://bucket"], "s3://bucket"),
        (["--storage", "/tmp", "--listen", "0.0.0.0:17777"], "--advertise"),
        (["--storage", "/tmp", "--listen", "here"], "'here'"),
        (["--storage", "/tmp", "--etcd", "there"], "'there'"),
    ],
)
def test_a_broker_that_can_not_start_says_why(options: list[str], message: str) -> None:
    assert message in run("broker", "--etcd", "127.0.0.1:1", *options).failure
