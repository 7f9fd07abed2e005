"""Local cluster of child processes: etcd and brokers on 127.0.0.1."""

import asyncio
import contextlib
import fcntl
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from seaweedmq.cli.output import note
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.errors import AlreadyExists, InvalidArgument, SeaweedMQError, StorageFailed, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.runtime.process.free_ports import HOST, ReservedPort
from seaweedmq.runtime.process.local_folder import STORAGE

START_TIMEOUT_S = 60.0
ETCD_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 60.0
"""Time in seconds after which a stopping broker is killed.

Above LEAVE_TIMEOUT_S + REPLICAS_TIMEOUT_S of ``broker.broker``: while storage or etcd fail, a broker may spend that
long writing out its replicas.
"""
CHECK_INTERVAL_S = 1.0
PROBE_TIMEOUT_S = 1.0
"""Timeout in seconds of a query to a starting broker: repeating it soon is better than a long wait."""


@dataclass(frozen=True, slots=True)
class Child:
    """A broker process."""

    address: str
    process: asyncio.subprocess.Process


class LocalCluster:
    """The running cluster that ``local_cluster`` yields."""

    def __init__(self, brokers: Sequence[Child], etcd: LocalEtcd | None, kafka_addresses: Sequence[str] = ()) -> None:
        self._brokers = tuple(brokers)
        self.kafka_addresses = tuple(kafka_addresses)
        """Addresses of the Kafka listeners, in the brokers' order; empty if there are none."""
        self._etcd = etcd

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the brokers, ``host:port``."""
        return tuple(child.address for child in self._brokers)

    @property
    def pids(self) -> tuple[int, ...]:
        """The process ids of the brokers."""
        return tuple(child.process.pid for child in self._brokers)

    async def watch(self) -> None:
        """Report on stderr each process that ends, while any broker runs; Unavailable once the last one ended."""
        alive = {asyncio.create_task(child.process.wait()): child for child in self._brokers}
        etcd_lives = self._etcd is not None
        try:
            while alive:
                ended, _ = await asyncio.wait(alive, timeout=CHECK_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
                for task in ended:
                    child = alive.pop(task)
                    note(f"broker {child.address} pid {child.process.pid} ended: {_how(child)}")
                if etcd_lives and self._etcd is not None and self._etcd.pid is None:
                    etcd_lives = False
                    note("etcd ended: topics and brokers cannot change until the cluster is started again")
        finally:
            for task in alive:
                task.cancel()
        raise Unavailable("no broker is left: start the cluster again, it serves the stored records")


@contextlib.asynccontextmanager
async def local_cluster(
    *,
    brokers: int,
    data: Path,
    port: int,
    kafka_port: int | None = None,
    etcd_endpoints: str | None = None,
    broker_options: Sequence[str] = (),
    lease_ttl_s: float = BrokerConfig().lease_ttl_s,
) -> AsyncIterator[LocalCluster]:
    """Start etcd (unless one is named) and brokers on the ports from ``port``, and stop them at the end.

    If its own etcd has lost data that the storage has, the cluster recovers it; brokers serve nothing before that.
    Conflict is raised if it cannot, or if a named etcd is lost or behind the storage; AlreadyExists if a port or the
    data folder is in use; Unavailable if a process ended while starting, or the brokers did not find each other in
    time; InvalidArgument if etcd and storage belong to different clusters, or the port ranges overlap.

    Args:
        brokers: Number of brokers.
        data: Folder for ``etcd`` and ``storage``; a cluster that is started on it again serves the stored records.
        port: Port of the first broker; 0 for any free ports.
        kafka_port: Port of the first broker's Kafka listener; 0 for any free ports, None for no listeners.
        etcd_endpoints: ``host:port[,host:port]`` of a running etcd.
        broker_options: Command-line options of every broker.
        lease_ttl_s: Longest lease of a broker in seconds, including brokers of an earlier start: a recovery waits for
            it.
    """
    if port and kafka_port and abs(port - kafka_port) < brokers:
        raise InvalidArgument(
            f"--port {port} and --kafka-port {kafka_port} overlap, each is the first of {brokers}: "
            f"choose ports that are at least {brokers} apart"
        )
    async with contextlib.AsyncExitStack() as stack:
        # Reserved until all has stopped: the brokers listen there soon, and no other process may get such a port.
        addresses = [stack.enter_context(_reserved(port and port + i, "--port")).address for i in range(brokers)]
        kafka: list[str] = []
        if kafka_port:
            kafka = [stack.enter_context(_reserved(kafka_port + i, "--kafka-port")).address for i in range(brokers)]
        elif kafka_port is not None:
            kafka = [f"{HOST}:0"] * brokers
        storage = stack.enter_context(_exclusive_folder(data)) / STORAGE
        etcd = LocalEtcd(storage.parent / "etcd") if etcd_endpoints is None else None
        if etcd is not None:
            stack.push_async_callback(etcd.stop)
            etcd_endpoints = etcd.endpoint
        children: list[Child] = []
        stack.push_async_callback(_stop, children)
        for i, address in enumerate(addresses):
            options = (*broker_options, "--kafka-listen", kafka[i]) if kafka else broker_options
            await _spawn(children, address, str(etcd_endpoints), storage, options)
        if etcd is not None:
            await etcd.start()  # after the brokers, which wait for it and take longer to load
        # Lazy import: it loads while the brokers start.
        from seaweedmq.cli.servers.recovery import recover_local

        is_own = etcd is not None
        await recover_local(str(storage), str(etcd_endpoints), ETCD_TIMEOUT_S, is_own=is_own, lease_ttl_s=lease_ttl_s)
        found = await _until_ready(children)
        yield LocalCluster(children, etcd, [found[child.process.pid] for child in children] if kafka else ())


def _reserved(port: int, option: str) -> ReservedPort:
    try:
        return ReservedPort(port)
    except OSError as error:
        raise AlreadyExists(f"port {port} is not free ({error.strerror}): choose another with {option}") from None


@contextlib.contextmanager
def _exclusive_folder(data: Path) -> Iterator[Path]:
    """Create the folder, lock it against a second cluster, and yield its absolute path."""
    try:
        (data / "storage").mkdir(parents=True, exist_ok=True)
        lock = (data / "lock").open("w")
    except OSError as error:
        raise StorageFailed(f"data folder {data} cannot be used: {error.strerror}") from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyExists(f"data folder {data} is in use by another cluster: name another with --data") from None
        yield data.absolute()


async def _spawn(children: list[Child], address: str, etcd: str, storage: Path, options: Sequence[str]) -> None:
    command = [sys.executable, "-m", "seaweedmq.cli.main", "broker"]
    command += ["--etcd", etcd, "--storage", str(storage), "--listen", address, "--parent-pid", str(os.getpid())]
    process = await asyncio.create_subprocess_exec(
        *command,
        *options,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        process_group=0,  # Ctrl-C in the terminal is for this process, which stops the brokers in order
    )
    children.append(Child(address, process))


async def _until_ready(children: Sequence[Child]) -> Mapping[int, str]:
    """Wait until every broker is registered, answers for the cluster by itself, and serves both kinds of clients.

    Returns the addresses of the Kafka listeners by the brokers' process ids.
    """
    pids = {child.process.pid for child in children}
    found: Mapping[int, str] = {}
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            for child in children:
                while not pids <= (found := await _known(child)).keys():
                    _check_alive(children)
                    await asyncio.sleep(0.05)
                while not await _is_serving(child):
                    _check_alive(children)
                    await asyncio.sleep(0.05)
    except TimeoutError:
        raise Unavailable(f"the brokers did not find each other within {START_TIMEOUT_S:.0f} s") from None
    return found


async def _is_serving(child: Child) -> bool:
    from seaweedmq.rpc.health import is_serving  # lazy, as the client below

    return await is_serving(child.address, PROBE_TIMEOUT_S)


async def _known(child: Child) -> Mapping[int, str]:
    """Return the process ids and Kafka addresses of the brokers that one broker knows."""
    # Lazy import: a client is loaded while the brokers start, not before.
    from seaweedmq import ClientConfig, aio

    probe = ClientConfig(connect_timeout_s=PROBE_TIMEOUT_S, admin_timeout_s=PROBE_TIMEOUT_S)
    try:
        async with aio.connect(child.address, config=probe) as client:
            status = await client.admin.cluster_status()
    except SeaweedMQError:
        return {}
    return {broker.info.pid: broker.info.kafka_address for broker in status.brokers}


def _check_alive(children: Sequence[Child]) -> None:
    for child in children:
        if child.process.returncode is not None:
            raise Unavailable(f"broker {child.address} ended while starting: {_how(child)}")


def _how(child: Child) -> str:
    status = child.process.returncode
    if status is not None and status < 0:
        return f"killed by {signal.Signals(-status).name}"
    return f"exit status {status}"


async def _stop(children: Sequence[Child]) -> None:
    for child in children:
        for number in (signal.SIGTERM, signal.SIGCONT):  # a stopped process gets SIGTERM after SIGCONT
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)
    waits = [asyncio.create_task(child.process.wait()) for child in children]
    if waits:
        await asyncio.wait(waits, timeout=STOP_TIMEOUT_S)
    for child in children:
        if child.process.returncode is None:
            note(f"broker {child.address} did not stop within {STOP_TIMEOUT_S:.0f} s, killing it")
            child.process.kill()
            await child.process.wait()
