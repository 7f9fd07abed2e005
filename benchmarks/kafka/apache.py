"""Apache Kafka with more than one node, for rows with replicas: one that is broker and controller, others brokers."""

import contextlib
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from benchmarks.contest.errors import Failed
from benchmarks.contest.kafka.server import CLUSTER_ID, KafkaServer, java

START_TIMEOUT_S = 90.0
LOOK_S = 0.1


class FurtherNode(KafkaServer):
    """A broker that joins the first node.

    Args:
        controller: ``host:port`` of the first node's controller.
        node: Its number, from 2 on.
    """

    def __init__(self, folder: Path, *, controller: str, node: int) -> None:
        super().__init__(folder, fsync=False)
        self._controller = controller
        self._node = node

    def prepare(self) -> None:
        properties = {
            "process.roles": "broker",
            "node.id": str(self._node),
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": self._controller,
            "log.dirs": str(self.folder / "data"),
        }
        self.config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        tool = ["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(self.config)]
        done = subprocess.run([*java(), *tool], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"Kafka's folder cannot be formatted: {done.stdout}{done.stderr}")


@contextlib.contextmanager
def running_apache(folder: Path, nodes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield the address of the first node, and process ids of all. Raises Missing if Kafka cannot be had, Failed."""
    KafkaServer.equip()
    (folder / "apache-1").mkdir()
    first = KafkaServer(folder / "apache-1", fsync=False)
    first.prepare()
    servers: list[KafkaServer] = [first]
    for node in range(2, nodes + 1):
        (folder / f"apache-{node}").mkdir()
        further = FurtherNode(folder / f"apache-{node}", controller=first.controller, node=node)
        further.prepare()
        servers.append(further)
    try:
        for server in servers:
            server.start()
        _until_there(first, nodes)
        yield first.address, tuple(pid for server in servers for pid in server.pids())
    finally:
        for server in reversed(servers):  # the controller last: brokers deregister from it
            server.stop()


def _until_there(first: KafkaServer, nodes: int) -> None:
    end = time.monotonic() + START_TIMEOUT_S
    admin = AdminClient({"bootstrap.servers": first.address, "log_level": 0})
    while True:
        with contextlib.suppress(KafkaException):
            if len(admin.list_topics(timeout=1.0).brokers) == nodes:
                return
        if time.monotonic() > end:
            raise Failed(f"Apache Kafka's {nodes} nodes are not there after {START_TIMEOUT_S:.0f} s: {first.log_end()}")
        time.sleep(LOOK_S)
