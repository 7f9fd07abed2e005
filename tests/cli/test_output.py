"""Commands write all of their output to stdout, or fail: nothing is lost between a buffer and the pipe."""

import errno
import io
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from seaweedmq.cli import output


class RawStdout(io.RawIOBase):
    """A descriptor that accepts as many bytes as its limits allow, as raw files do."""

    def __init__(self, limits: list[int | None]) -> None:
        self.written = b""
        self._limits = limits
        self._ready = os.open(os.devnull, os.O_WRONLY)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._ready

    def write(self, data: "memoryview") -> int | None:  # type: ignore[override]
        if not self._limits:
            raise OSError(errno.ENOSPC, "No space left on device")
        limit = self._limits.pop(0)
        if limit is None:
            return None
        self.written += bytes(data[:limit])
        return min(limit, len(data))


def text_on(raw: Any, *, is_buffered: bool = True) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedWriter(raw) if is_buffered else raw, write_through=not is_buffered)


@pytest.mark.parametrize("is_buffered", [False, True])
def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch, is_buffered: bool) -> None:
    """With PYTHONUNBUFFERED=1 there is no buffer. A full non-blocking pipe accepts nothing for a while."""
    raw = RawStdout([4, None, 1, 100])
    monkeypatch.setattr(sys, "stdout", text_on(raw, is_buffered=is_buffered))
    output.write(b"three records")
    assert raw.written == b"three records"


def test_what_is_not_written_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = RawStdout([4])
    monkeypatch.setattr(sys, "stdout", text_on(raw))
    with pytest.raises(OSError, match="No space left on device: '<stdout>'"):
        output.write(b"three records")
    sys.stdout.flush()  # nothing is left to write


def test_a_reader_that_leaves_in_the_middle_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    monkeypatch.setattr(sys, "stdout", text_on(io.FileIO(writing, "w"), is_buffered=False))

    def read_one() -> None:
        os.read(reading, 1)
        os.close(reading)

    leaving = threading.Thread(target=read_one)
    leaving.start()
    with pytest.raises(typer.Exit) as ended:
        output.write(bytes(1 << 20))
    leaving.join()
    assert ended.value.exit_code == 0


def failing(error: Exception) -> Callable[[], None]:
    def command() -> None:
        with output.one_line_errors():
            raise error

    return command


def test_a_defect_is_one_line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SEAWEEDMQ_DEBUG", raising=False)
    with pytest.raises(SystemExit) as ended:
        failing(KeyError("name"))()
    assert ended.value.code == 1
    said = capsys.readouterr().err
    assert said == "error: internal: KeyError: 'name' (set SEAWEEDMQ_DEBUG=1 for the traceback)\n"
    monkeypatch.setenv("SEAWEEDMQ_DEBUG", "1")
    with pytest.raises(KeyError):
        failing(KeyError("name"))()


STREAMS = """
import os, sys
from seaweedmq.cli import main
main._occupy_closed_streams()
opened = os.open(os.devnull, os.O_RDONLY)
try:
    print("printed", flush=True)
except OSError as error:
    os.write(2, error.strerror.encode())
print("noted", file=sys.stderr, flush=True)
sys.exit(opened > 2)
"""


@pytest.mark.parametrize(
    ("closed", "stdout", "stderr"),
    [
        ("<&-", b"printed\n", b"noted\n"),
        (">&-", b"", b"Bad file descriptornoted\n"),
        ("2>&-", b"printed\n", b""),
        ("<&- >&- 2>&-", b"", b""),
    ],
)
def test_a_closed_stream_is_not_taken_by_a_connection(closed: str, stdout: bytes, stderr: bytes) -> None:
    """A write to a closed stdout fails, so that no command assumes success."""
    command = ["bash", "-c", f'exec "$@" {closed}', "-", sys.executable, "-c", STREAMS]
    done = subprocess.run(command, capture_output=True, check=False, cwd=Path(output.__file__).parents[2])
    assert (done.returncode, done.stdout, done.stderr) == (1, stdout, stderr)
