"""A Kafka node with its defaults, from Maven Central. Formatting its folder is not part of starting it."""

import re
import subprocess
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.contest.errors import Failed, Missing
from benchmarks.contest.server import Server, require_module, require_program
from seaweedmq.runtime.process.free_ports import ReservedPort

KAFKA_VERSION = "4.1.2"
JAVA_MIN = 17
HERE = Path(__file__).parent
JARS = Path.home() / ".cache" / "seaweedmq-peers" / f"kafka-{KAFKA_VERSION}"
CLUSTER_ID = "c2Vhd2VlZG1xLXBlZXJzLQ"
"""Sixteen bytes as base64; every folder has its own cluster, so any id is suitable."""
JVM_OPTIONS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
"""Heap and options of Kafka's own start script."""


class KafkaServer(Server):
    """Broker and controller in one JVM, formatted for ``address``."""

    @classmethod
    def equip(cls) -> str:
        require_module("confluent_kafka")
        java = java_version()
        if not JARS.is_dir():
            require_program("mvn")
            _download(JARS)
        return f"Apache Kafka {KAFKA_VERSION}, confluent-kafka {version('confluent-kafka')}, Java {java}"

    def __init__(self, folder: Path, *, fsync: bool) -> None:
        super().__init__(folder, fsync=fsync)
        self._controller_port = ReservedPort()
        self.controller = self._controller_port.address
        self.config = folder / "server.properties"

    def prepare(self) -> None:
        controller = self.controller
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address},CONTROLLER://{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": controller,
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        }
        if self.fsync:
            properties["log.flush.interval.messages"] = "1"
        config = self.config
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", CLUSTER_ID, "-c", str(config)]
        done = subprocess.run([*java(), *tool], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise Failed(f"Kafka's folder cannot be formatted: {done.stdout}{done.stderr}")

    def command(self) -> list[str]:
        return [*java(), "kafka.Kafka", str(self.config)]


def java_version() -> str:
    """Return the version that ``java`` prints. Raises Missing if there is no Java, or it is too old."""
    require_program("java")
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    found = re.search(r'version "((\d+)[^"]*)"', said)
    if found is None or int(found[2]) < JAVA_MIN:
        raise Missing(f"Kafka {KAFKA_VERSION} needs Java {JAVA_MIN}, and java is {found[1] if found else 'none'}")
    return found[1]


def java() -> list[str]:
    """Return the command of Java with Kafka's jars; the name of a class follows."""
    log = f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"
    return ["java", *JVM_OPTIONS, log, "-cp", str(JARS / "*")]


def bringing(folder: Path) -> list[str]:
    """Return the command with which Maven downloads Kafka and its dependencies into a folder, some 150 MB."""
    named = [f"-Dkafka.version={KAFKA_VERSION}", f"-DoutputDirectory={folder}"]
    return ["mvn", "-q", "-B", "-f", str(HERE / "pom.xml"), *named, "dependency:copy-dependencies"]


def _download(jars: Path) -> None:
    """Download all of it or nothing."""
    jars.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=jars.parent) as folder:
        arriving = Path(folder) / "jars"
        done = subprocess.run(bringing(arriving), capture_output=True, text=True, check=False)
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise Missing(f"Maven cannot download Kafka {KAFKA_VERSION}: {said[0] if said else 'it printed nothing'}")
        arriving.rename(jars)
