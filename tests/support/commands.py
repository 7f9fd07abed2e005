"""Runner of real commands against a real `seaweedmq up`."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

COMMAND = [sys.executable, "-m", "seaweedmq.cli.main"]
TIMEOUT_S = 120
"""Time in seconds after which a command hangs. One that starts a Spark beside two others takes a minute."""
CLUSTER_TIMEOUT_S = 60


@dataclass(frozen=True)
class Done:
    """The result of a command that ended."""

    status: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def error(self) -> str:
        """The only line on stderr."""
        assert self.stderr.count("\n") == 1, self.stderr
        return self.stderr.strip()

    @property
    def failure(self) -> str:
        """The error of a command that ended with status 1."""
        assert self.status == 1, self.stderr
        return self.error


def run(*arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None) -> Done:
    """Run a command to its end."""
    done = subprocess.run(
        [*COMMAND, *arguments],
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **(env or {})},
    )
    return Done(done.returncode, done.stdout, done.stderr.decode())


SeveralRun = Callable[..., list[Done]]
"""Runner of commands, one after another: each argument has those of a command."""


@contextlib.contextmanager
def several() -> Iterator[SeveralRun]:
    """Run all commands in one process during the ``with`` block: Java, most of a Spark command's time, then starts
    once.
    """
    command = [sys.executable, "-m", "tests.support.several_commands"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        asked, told = process.stdin, process.stdout
        assert asked is not None
        assert told is not None

        def run_all(*commands: Sequence[str]) -> list[Done]:
            print(json.dumps(commands), file=asked, flush=True)
            line = told.readline()
            assert line, f"the process of the commands ended with status {process.wait()}"
            return [Done(status, out.encode(), err) for status, out, err in json.loads(line)]

        try:
            yield run_all
            asked.close()
            assert process.wait(TIMEOUT_S) == 0
        finally:
            process.kill()


@dataclass(frozen=True)
class Cluster:
    """A running `seaweedmq up`."""

    up: "subprocess.Popen[bytes]"
    addresses: str
    pids: tuple[int, ...]
    family: tuple[psutil.Process, ...]
    """Its own process, etcd and the brokers."""
    kafka: str = ""
    """Listen addresses for Kafka clients."""

    def run(self, *arguments: str, stdin: bytes = b"") -> Done:
        """Run a command with this cluster as bootstrap."""
        return run(*arguments, stdin=stdin, env={"SEAWEEDMQ_BOOTSTRAP": self.addresses})

    def ok(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run a command that must succeed; return its output."""
        done = self.run(*arguments, stdin=stdin)
        assert done.status == 0, done.stderr
        return done.text

    def pid_at(self, address: str) -> int:
        """Return the process of the broker that serves an address."""
        return self.pids[self.addresses.split(",").index(address)]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it and return its exit status."""
        self.up.send_signal(number)
        status = self.up.wait(CLUSTER_TIMEOUT_S)
        _, alive = psutil.wait_procs(self.family, timeout=5)
        assert not alive, alive
        return status


@contextlib.contextmanager
def running_cluster(
    data: Path,
    *,
    brokers: int = 1,
    port: int = 0,
    kafka_port: int | None = None,
    config: Path | None = None,
    executable: Sequence[str] = COMMAND,
) -> Iterator[Cluster]:
    """Start `seaweedmq up` on free ports; kill it with its children if the test did not stop it.

    An ``executable`` other than the tree's runs outside of the tree, since its children import from their folder.
    """
    folder = None if executable is COMMAND else data.parent
    command = [*executable, "up", "--brokers", str(brokers), "--port", str(port), "--data", str(data)]
    if kafka_port is not None:
        command += ["--kafka-port", str(kafka_port)]
    if config is not None:
        command += ["--config", str(config)]
    with (data.parent / "up.log").open("ab") as log:
        up = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, cwd=folder)
    family: list[psutil.Process] = [psutil.Process(up.pid)]
    try:
        line = up.stdout.readline().decode()
        assert line.startswith("ready "), (data.parent / "up.log").read_text()
        _, addresses, _, *pids = line.split()
        ports = {int(address.removeprefix("127.0.0.1:")) for address in addresses.split(",")}
        assert len(ports) == brokers
        assert not port or ports == set(range(port, port + brokers))
        kafka = up.stdout.readline().decode().removeprefix("kafka ").strip() if kafka_port is not None else ""
        family += family[0].children(recursive=True)
        yield Cluster(up, addresses, tuple(map(int, pids)), tuple(family), kafka)
    finally:
        if up.poll() is None:
            up.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                up.wait(CLUSTER_TIMEOUT_S)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        up.wait()
