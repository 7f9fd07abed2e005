"""Live views of a real cluster, in a pipe and on a terminal, until Ctrl-C."""

import contextlib
import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.support.commands import COMMAND, Cluster

pytestmark = pytest.mark.integration


@contextlib.contextmanager
def watching(cluster: Cluster, *arguments: str, stdout: int = subprocess.PIPE) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a command that runs until it is interrupted."""
    command = [*COMMAND, "--bootstrap", cluster.addresses, *arguments]
    environment = {**os.environ, "TERM": "xterm-256color"}
    process = subprocess.Popen(command, stdout=stdout, stderr=subprocess.PIPE, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def interrupt(process: "subprocess.Popen[bytes]") -> tuple[int, bytes]:
    """Send Ctrl-C; return exit status and stderr."""
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=20)
    return process.returncode, error


@pytest.mark.deep
def test_in_a_pipe_one_picture_follows_the_other(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "watch/plain", "--segments", "2")
    for arguments, head in (
        (["topic", "describe", "watch/plain", "--watch"], b"watch/plain  "),
        (["cluster", "status", "--watch"], b"cluster  3 brokers"),
    ):
        with watching(cluster, *arguments) as process:
            assert process.stdout is not None
            pictures = 0
            while pictures < 2:
                line = process.stdout.readline()
                assert line, "it ended by itself"
                assert b"\x1b" not in line
                pictures += line.startswith(head)
            assert interrupt(process) == (0, b"")


def test_json_is_a_line_each_time(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "watch/json")
    with watching(cluster, "topic", "describe", "watch/json", "--watch", "--output", "json") as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        assert first["topic"] == second["topic"] == "watch/json"
        assert (first["status"], interrupt(process)) == ("ok", (0, b""))
    with watching(cluster, "cluster", "status", "--watch", "--output", "json") as process:
        assert process.stdout is not None
        assert (len(json.loads(process.stdout.readline())["brokers"]), interrupt(process)) == (3, (0, b""))


def test_on_a_terminal_it_is_drawn_over_and_over(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "watch/drawn", "--segments", "3")
    master, slave = pty.openpty()
    with watching(cluster, "topic", "describe", "watch/drawn", "--watch", stdout=slave) as process:
        os.close(slave)
        drawn = b""
        while drawn.count(b"watch/drawn") < 2:
            drawn += os.read(master, 65_536)
        assert drawn.count("▏".encode()) >= 3
        assert b"\x1b[1A" in drawn
        assert interrupt(process) == (0, b"")
        os.close(master)


def test_watching_what_is_not_there_fails_at_once(cluster: Cluster) -> None:
    assert "watch/nothing" in cluster.run("topic", "describe", "watch/nothing", "--watch").failure
