"""A cluster of real processes for fault injection: etcd, brokers, and proxies.

Proxies stand between each broker and etcd, and between each broker and Kafka clients, which know no other address.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from seaweedmq import aio
from seaweedmq.codec.kafka.group_records import partition_of_group
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import broker_from_json, segment_from_json
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.rpc.health import is_serving
from tests.faults.machines.etcd_data import EtcdData
from tests.faults.machines.mount import StorageMount
from tests.faults.machines.network import Network
from tests.faults.machines.proxy import Proxy
from tests.faults.machines.wall_clock import WallClock

ROOT = Path(__file__).parents[3]
START_TIMEOUT_S = 40.0
STOP_TIMEOUT_S = 60.0
"""Seconds that exceed all of a stopping broker's timeouts together."""
LOOK_S = 0.05
ETCD_QUOTA_BYTES = 64 << 20
"""Many times the metadata of a test, and quickly filled."""
KAFKA_GROUPS = "kafka/__consumer_offsets"
SETTINGS = {
    "log_roll_age_s": 4.0,
    "partition_roll_age_s": 4.0,
    "maintenance_interval_s": 1.0,
    "log_grace_s": 5.0,
    "conversion_delay_s_max": 0.1,
}
"""Settings with which files are rolled, converted and deleted during the faults."""


class Node:
    """A broker's address, its proxies to etcd and for Kafka clients, and its successive processes."""

    def __init__(self, index: int, etcd: Proxy, kafka: Proxy, clock: WallClock | None = None) -> None:
        self.index = index
        self.clock = clock
        self.etcd = etcd
        self.kafka = kafka
        self.process: asyncio.subprocess.Process | None = None
        self.starting = asyncio.Lock()
        """Lock for starts: simultaneous faults may restart the same node, which runs one process."""
        self.is_frozen = False
        self.log_position = 0
        """Position in the log up to which ``Cluster.tracebacks`` has read."""

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process is not None and self.process.returncode is None else None

    def __str__(self) -> str:
        return f"broker {self.index}"


class Cluster:
    """A cluster as an async context manager; ``directory`` gets the storage, etcd's data and a log of each broker."""

    def __init__(
        self,
        directory: Path,
        network: Network,
        *,
        brokers: int,
        lease_ttl_s: float,
        storage: Path | None = None,
        mount: StorageMount | None = None,
        quota: bool = False,
        clocks: bool = False,
        settings: Mapping[str, float] | None = None,
    ) -> None:
        """Create a cluster.

        Args:
            storage: Directory of the storage.
            mount: A file system of its own for the storage.
            quota: Whether brokers have a quota, see ``quota_broker``.
            clocks: Whether the first broker's wall clock can be stepped.
            settings: Settings of ``BrokerConfig`` that extend ``SETTINGS``."""
        self.directory = directory
        self.storage = mount.path if mount is not None else storage or directory / "storage"
        self.mount = mount
        self.quota = quota
        self.clocks = clocks
        self.network = network
        self.lease_ttl_s = lease_ttl_s
        self.etcd = LocalEtcd(directory / "etcd", fsync=False, quota_bytes=ETCD_QUOTA_BYTES)
        self.etcd_data = EtcdData(self.etcd, directory / "etcd")
        self.etcd_turn = asyncio.Lock()
        """Held by a fault that stops etcd until it has repaired it: there is one etcd, and a stopped one cannot be
        stopped."""
        self.storage_turn = asyncio.Lock()
        """Held while the storage is unmounted or rejects writes: no other fault touches its files."""
        self.nodes: list[Node] = []
        self._brokers = brokers
        self._settings = {**SETTINGS, **(settings or {})}
        self._meta: EtcdMetaStore | None = None

    async def __aenter__(self) -> "Cluster":
        await asyncio.to_thread(self.storage.mkdir, parents=True, exist_ok=True)
        config = "".join(f"{name} = {value}\n" for name, value in self._settings.items())
        await asyncio.to_thread((self.directory / "broker.toml").write_text, config)
        await self.etcd.start()
        host, port = self.etcd.endpoint.rsplit(":", 1)
        self._meta = EtcdMetaStore(self.etcd.endpoint, timeout_s=1.0, rng=random.Random(1))
        try:
            for index in range(self._brokers):
                proxy = Proxy((host, int(port)))
                await proxy.start(self.network.host)
                kafka = Proxy(self.network.kafka(index))
                await kafka.start(self.network.host)
                clock = WallClock(self.directory / f"clock-{index}") if self.clocks and index == 0 else None
                self.nodes.append(Node(index, proxy, kafka, clock))
            for node in self.nodes:
                await self.start(node)
            await self.until_ready()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for node in self.nodes:
            await self.kill(node)
            await node.etcd.close()
            await node.kafka.close()
        if self._meta is not None:
            await self._meta.close()
        await self.etcd.kill()

    @property
    def bootstrap(self) -> str:
        return ",".join(self.network.advertise(node.index) for node in self.nodes)

    @property
    def kafka(self) -> str:
        return ",".join(node.kafka.address for node in self.nodes)

    async def connect(self) -> aio.Client:
        return await aio.connect(self.bootstrap)

    # --- processes ----------------------------------------------------------------------------------------------------

    async def start(self, node: Node) -> None:
        """Start the node's broker, if none runs."""
        async with node.starting:
            if node.pid is None:
                await self._spawn(node)

    async def _spawn(self, node: Node) -> None:
        program = "tests.faults.machines.quota_broker" if self.quota else "seaweedmq.cli.main"
        command = [*self.network.command(node.index), sys.executable, "-m", program, "broker"]
        command += ["--etcd", node.etcd.address, "--storage", str(self.storage)]
        command += ["--listen", self.network.listen(node.index), "--advertise", self.network.advertise(node.index)]
        host, port = self.network.kafka(node.index)
        command += ["--kafka-listen", f"{host}:{port}", "--kafka-advertise", node.kafka.address]
        command += ["--lease-ttl", str(self.lease_ttl_s), "--config", str(self.directory / "broker.toml")]
        command += ["--parent-pid", str(os.getpid())]
        log = await asyncio.to_thread(self.log_path(node).open, "ab")
        with log:
            node.process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,
                cwd=ROOT,
                env={**os.environ, **(node.clock.environment() if node.clock is not None else {})},
            )
        node.is_frozen = False

    def log_path(self, node: Node) -> Path:
        """Return the stderr file of its successive processes."""
        return self.directory / f"broker-{node.index}.log"

    async def kill(self, node: Node) -> None:
        if node.process is not None:
            self.signal(node, signal.SIGKILL)
            await node.process.wait()

    async def terminate(self, node: Node) -> int:
        """Send SIGTERM; return the exit status. Raises TimeoutError if it does not end."""
        assert node.process is not None
        self.signal(node, signal.SIGTERM)
        async with asyncio.timeout(STOP_TIMEOUT_S):
            return await node.process.wait()

    def stops_cleanly(self, node: Node) -> bool:
        """Whether the process handles SIGTERM (on Linux); the signal kills one that still imports its modules."""
        try:
            status = Path(f"/proc/{node.pid}/status").read_text()
        except OSError:
            return True  # another system, or the process has ended
        caught = next(line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:"))
        return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)

    def signal(self, node: Node, number: signal.Signals) -> None:
        if node.process is not None and node.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                node.process.send_signal(number)
            if number in (signal.SIGSTOP, signal.SIGCONT):  # SIGTERM waits until a frozen process continues
                node.is_frozen = number == signal.SIGSTOP

    # --- the cluster according to etcd
    # ----------------------------------------------------------------------------------

    @property
    def meta(self) -> EtcdMetaStore:
        assert self._meta is not None
        return self._meta

    async def members(self) -> dict[str, Node]:
        """Return registered broker ids and their nodes, without those of ended processes."""
        found = await self.meta.list(keys.BROKERS)
        by_pid = {node.pid: node for node in self.nodes if node.pid is not None}
        infos = [broker_from_json(entry.value) for entry in found.entries]
        return {info.id: by_pid[info.pid] for info in infos if info.pid in by_pid}

    async def ghosts(self) -> list[str]:
        """Return registered brokers without a lease, which no broker would ever replace."""
        found = await self.meta.list(keys.BROKERS)
        return [entry.key for entry in found.entries if not entry.lease]

    async def leader(self) -> Node | None:
        lock = await self.meta.get(keys.LEADER)
        return None if lock is None else (await self.members()).get(lock.value.decode())

    async def open_segments(self, topic: str) -> list[Segment]:
        found = await self.meta.list(keys.segments_prefix(TopicName.parse(topic)))
        return [s for s in (segment_from_json(entry.value) for entry in found.entries) if s.is_open]

    async def replicas(self, topic: str, place: int) -> list[Node]:
        """Return the nodes with a role (0 primary, 1 follower) in open segments of the topic, the busiest first."""
        members = await self.members()
        counts: dict[int, int] = {}
        for segment in await self.open_segments(topic):
            if place < len(segment.replicas) and segment.replicas[place] in members:
                index = members[segment.replicas[place]].index
                counts[index] = counts.get(index, 0) + 1
        return [self.nodes[i] for i in sorted(counts, key=lambda i: (-counts[i], i))]

    async def coordinator(self, group: str) -> Node | None:
        """Return the coordinator of a Kafka group, or None if there is none at the moment."""
        segments = await self.open_segments(KAFKA_GROUPS)
        place = partition_of_group(group, BrokerConfig().kafka_internal_partitions)
        members = await self.members()
        return next((members.get(s.primary) for s in segments if place in s.slots), None)

    async def until_ready(self) -> None:
        """Wait until every node has a registered broker that serves, and one leads. Raises Unavailable."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await self._is_ready():
                    for node in self.nodes:
                        if node.process is not None and node.process.returncode is not None:
                            raise Unavailable(f"{node} ended with {node.process.returncode}: {self.log_end(node)}")
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            logs = "\n".join(self.log_end(node) for node in self.nodes)
            raise Unavailable(f"the cluster is not ready after {START_TIMEOUT_S:g} s:\n{logs}") from None

    async def _is_ready(self) -> bool:
        try:
            members = await self.members()
            if len(set(members.values())) < len(self.nodes) or await self.leader() is None:
                return False
            return all([await is_serving(address, 1.0) for address in self.bootstrap.split(",")])
        except SeaweedMQError:
            return False

    def log_end(self, node: Node, lines: int = 15) -> str:
        with self.log_path(node).open(errors="replace") as log:
            return "".join(log.readlines()[-lines:])

    def log_since(self, node: Node, position: int) -> str:
        with self.log_path(node).open(errors="replace") as log:
            log.seek(position)
            return log.read()

    def tracebacks(self) -> list[str]:
        """Return lines with unexpected errors in the brokers' logs since the last call."""
        found = []
        for node in self.nodes:
            with self.log_path(node).open(errors="replace") as log:
                log.seek(node.log_position)
                found += [f"{node}: {line.rstrip()}" for line in log.readlines() if "Traceback" in line]
                node.log_position = log.tell()
        return found
