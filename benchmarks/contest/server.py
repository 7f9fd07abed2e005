"""Server of a system: its requirements, start and end."""

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
        folder: Folder for data, configuration and log, empty; the caller deletes it.
        fsync: Whether a record is on disk before its acknowledgement. If not, the operating system has it.
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
        """Check or install the requirements of server and client, and return their versions.

        Raises:
            Missing: If one is absent and cannot be installed.
        """

    @abstractmethod
    def command(self) -> list[str]:
        """Command that starts it."""

    def prepare(self) -> None:  # noqa: B027  # few have something to prepare
        """Prepare the first start, outside of the measured time. Raises Failed."""

    def start(self) -> None:
        """Begin to start, and return at once."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def pids(self) -> tuple[int, ...]:
        """Ids of the working processes, whose children also count; called when the server is ready."""
        assert self._process is not None
        return (self._process.pid,)

    def stop(self) -> None:
        """Send SIGTERM, and SIGKILL to a process that does not end."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def log_end(self) -> str:
        """Return the end of the server's output."""
        return self._log.read_text(errors="replace")[-LOG_END_CHARACTERS:] if self._log.exists() else ""


def require_program(name: str) -> None:
    """Check that PATH has a program. Raises Missing if not."""
    if shutil.which(name) is None:
        raise Missing(f"no {name} on PATH")


def require_module(name: str) -> None:
    """Check that a module is installed. Raises Missing if not."""
    if importlib.util.find_spec(name) is None:
        raise Missing(f"no Python module {name}: pip install -e '.[peers]'")
