"""Tests that run every command and example of the guides, unchanged, on a real cluster and real Spark."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from seaweedmq.runtime.process.local_folder import LOCAL_DATA
from tests.support.commands import Cluster, running_cluster

ROOT = Path(__file__).parents[1]
GUIDES = ("README.md", *(f"seaweedmq/{room}/README.md" for room in ("client", "kafka", "spark")))
"""Guides in test order: later ones use the topics of earlier ones."""
TEXT = "\n".join((ROOT / guide).read_text() for guide in GUIDES)
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
SHELL = list(
    dict.fromkeys(
        line.split("  #")[0].strip() for kind, block in BLOCKS if kind == "bash" for line in block.splitlines() if line
    )
)
PYTHON = list(dict.fromkeys(block for kind, block in BLOCKS if kind == "python"))

SHELL_TIMEOUT_S = 120
"""Some lines start a Spark, and another worker may start one at the same time."""
RUN_ELSEWHERE = {
    "make test": "this",
    "make demo": "tests/cli/test_demo.py runs what it runs",
    "seaweedmq up": "the cluster of this test, with a port and a folder of its own",
    'pip install "seaweedmq[kafka]" confluent-kafka': "this environment has both",
    "seaweedmq up --kafka-port 9092": "the cluster of this test, with a port of its own for Kafka's clients",
}
BROKER = "seaweedmq broker --etcd 127.0.0.1:2379 --storage /mnt/seaweedmq --listen 127.0.0.1:17777"
"""The command with which ``up`` starts its brokers; the test only checks that its options exist."""
EXAMPLES = ("python -m seaweedmq.examples.", "cd pipeline && spark-pipelines ")
"""Commands that tests/examples/test_commands.py finds in Spark's guide and runs."""
TABLE_JOBS = [line for line in SHELL if line.startswith("seaweedmq table")]
FOR_KAFKA = [line for line in SHELL if "kafka/" in line or "kcat" in line]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme") / LOCAL_DATA


@pytest.fixture(scope="module")
def cluster(data: Path) -> Any:
    with running_cluster(data, brokers=3, kafka_port=0) as made:
        yield made


def shell(line: str, cluster: Cluster, folder: Path | None = None) -> str:
    """Return the output of a shell line with ``seaweedmq`` on its path; ``folder``: the working directory of `up`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SEAWEEDMQ_BOOTSTRAP": cluster.addresses}
    asked = {"cwd": folder, "env": env, "timeout": SHELL_TIMEOUT_S}
    done = subprocess.run(["bash", "-o", "pipefail", "-c", line], capture_output=True, text=True, check=False, **asked)
    assert done.returncode == 0, f"{line}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the first steps, with the file that they publish."""
    made = tmp_path_factory.mktemp("steps")
    shutil.copy(ROOT / "README.md", made)
    return made


@pytest.fixture(scope="module")
def outputs(cluster: Cluster, folder: Path) -> dict[str, str]:
    """Run the first steps, and return their outputs."""
    others = (*RUN_ELSEWHERE, *FOR_KAFKA, *TABLE_JOBS, BROKER)
    steps = [line for line in SHELL if line not in others and not line.startswith(EXAMPLES)]
    return {line: shell(line, cluster, folder) for line in steps}


@pytest.mark.integration
def test_the_first_steps_do_what_the_guides_say(outputs: dict[str, str], folder: Path) -> None:
    assert len(outputs) >= 6, "the commands of the guides were not found"
    assert outputs["seaweedmq subscribe test/numbers --limit 3"].count("\n") == 3
    assert outputs["seaweedmq subscribe test/numbers --format raw | tail -n 1"] == "1000000\n"
    group = "seaweedmq subscribe test/numbers --group adders --format raw | wc -l"
    assert outputs[group].strip() == "1000000"
    assert "lag_records  0" in outputs["seaweedmq group describe adders"]
    assert "split 0 into 1" in outputs["seaweedmq segment split test/numbers 0"]
    assert "1000000" in outputs["seaweedmq topic describe test/numbers"]
    (payload,) = (folder / "payloads").iterdir()
    assert (payload.name, payload.read_bytes()) == ("readme", (ROOT / "README.md").read_bytes())


@pytest.mark.deep
@pytest.mark.integration
@pytest.mark.usefixtures("outputs")
def test_jobs_on_tables_do_what_the_guides_say(cluster: Cluster, data: Path) -> None:
    assert len(TABLE_JOBS) == 3, "the commands of the guides were not found"
    log = data / "storage" / "topics" / "test" / "numbers" / "table" / "_delta_log"
    tries = Retrying(retry=retry_if_result(bool), wait=wait_fixed(0.2), stop=stop_after_delay(60))
    tries(lambda: not any(log.glob("*.json")))  # the split segment becomes a table
    for line in TABLE_JOBS:
        assert shell(line, cluster, data.parent)


@pytest.mark.deep
@pytest.mark.integration
def test_the_examples_in_python_work(cluster: Cluster, data: Path, tmp_path: Path) -> None:
    publish_and_read, source, payloads, group, _, plain, fetched = PYTHON
    printed = _python(publish_and_read.replace('"127.0.0.1:17777"', repr(cluster.addresses)), tmp_path)
    assert printed.count("\n") == 1000
    assert "b'customer 9' b'order 999'" in printed
    for name in ("film", "trailer"):
        (tmp_path / f"{name}.mp4").write_bytes(name.encode() * 100_000)
    _python(payloads.replace('"127.0.0.1:17777"', repr(cluster.addresses)), tmp_path)
    for name in ("film", "trailer"):
        assert (tmp_path / f"{name}.copy").read_bytes() == (tmp_path / f"{name}.mp4").read_bytes()
    mails = _python(group.replace('"127.0.0.1:17777"', repr(cluster.addresses)), tmp_path)
    assert mails.count("mail to") == 1000  # handlers print concurrently, so lines may mix

    spark = (
        "from pyspark.sql import SparkSession\n"
        "spark = SparkSession.builder.master('local[2]').config('spark.ui.enabled', 'false')"
        ".config('spark.driver.bindAddress', '127.0.0.1').config('spark.log.level', 'OFF').getOrCreate()\n"
    )
    read, fetch = (
        block.replace("seaweedmq-data/storage", str(data / "storage")).strip() for block in (source, fetched)
    )
    last, last_fetched = read.splitlines()[-1], fetch.splitlines()[-1]
    read = read.replace(last, f"print(({last}).count())")
    fetch = fetch.replace(last_fetched, f"print(sum(len(row.value) for row in ({last_fetched}).collect()))")
    assert _python(f"{spark}{read}\n{fetch}\n", tmp_path).split()[-2:] == ["1000", "1100000"]
    assert plain.strip().startswith("spark.read.parquet("), "tests/spark reads the table folder with plain Spark"


@pytest.mark.integration
def test_kafka_s_clients_do_what_the_guides_say(cluster: Cluster, tmp_path: Path) -> None:
    example = next(block for block in PYTHON if "confluent_kafka" in block)
    printed = _python(example.replace("127.0.0.1:9092", cluster.kafka), tmp_path)
    assert printed.count("\n") == 1000
    assert " b'user 9' b'click 999'\n" in printed

    assert len(FOR_KAFKA) == 3, "the commands of the guides were not found"
    tools = [line for line in FOR_KAFKA if "kcat" not in line or shutil.which("kcat")]
    outputs = {line: shell(line.replace("127.0.0.1:9092", cluster.kafka), cluster) for line in tools}
    assert outputs["seaweedmq subscribe kafka/clicks --limit 3"].count('"value":"click ') == 3
    assert "partitions            4\n" in outputs["seaweedmq topic describe kafka/clicks"]
    assert all('topic "clicks" with 4 partitions' in outputs[line] for line in tools if "kcat" in line)


def test_the_command_of_a_broker_is_spelled_right() -> None:
    assert BROKER in SHELL
    command = [sys.executable, "-m", "seaweedmq.cli.main", "broker", "--help"]
    env = {**os.environ, "COLUMNS": "200"}
    usage = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60, env=env).stdout
    for word in [*shlex.split(BROKER), *re.findall(r"--kafka-(?!port)[a-z]+", TEXT)]:
        assert not word.startswith("--") or word in usage


def _python(code: str, directory: Path) -> str:
    script = directory / "example.py"
    script.write_text(code)
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=100, check=False, cwd=directory,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout
