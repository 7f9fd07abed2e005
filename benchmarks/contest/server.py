"""A system's server: what it needs on this machine, starting it, ending it."""

import importlib.util
import shutil
import subprocess
from abc import ABC, abstractmethod
from pathlib import Path

from benchmarks.contest.errors import Missing
from seaweedmq.runtime.process.free_ports import ReservedPort

STOP_TIMEOUT_S = 60.0
LOG_END_CHARACTERS = 2_000


class Server(ABC):
    """The server processes of a system, listening on 127.0.0.1.

    Args:
        folder: for data, configuration and log, empty; the caller deletes it.
        fsync: whether a record is on the disk before it is acknowledged. If not, it is with the operating system.
    """

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        self.folder = folder
        self.fsync = fsync
        self._port = ReservedPort()
        self.address = self._port.address
        self._log = folder / "server.log"
        self._process: subprocess.Popen[bytes] | None = None

    @classmethod
    @abstractmethod
    def equip(cls) -> str:
        """See to what server and client need, and return their versions.

        Raises:
            Missing: something is not there and can not be had.
        """

    @abstractmethod
    def command(self) -> list[str]:
        """What starts it."""

    def prepare(self) -> None:  # noqa: B027  # few have something to prepare
        """What is done once before the first start, and is not part of starting. Raises Failed."""

    def start(self) -> None:
        """Begin to start, and return at once."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def pids(self) -> tuple[int, ...]:
        """Of the processes that do the work, whose children count, too. Asked when the server is ready."""
        assert self._process is not None
        return (self._process.pid,)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL to one that does not listen."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_end(self) -> str:
        """The last that the server said."""
        return self._log.read_text(errors="replace")[-LOG_END_CHARACTERS:] if self._log.exists() else ""


def require_program(name: str) -> None:
    """Raises Missing if there is no such program on PATH."""
    if shutil.which(name) is None:
        raise Missing(f"no {name} on PATH")


def require_module(name: str) -> None:
    """Raises Missing if there is no such module."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"no Python module {name}: pip install -e '.[peers]'")
