"""kcat, and the first lines of a new user."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.integration.kafka.conftest import BROKERS, Kafka

pytestmark = pytest.mark.integration

TIMEOUT_S = 30
KCAT = shutil.which("kcat") or shutil.which("kafkacat") or ""
FIRST_LINES = """
from confluent_kafka import Consumer, Producer

producer = Producer({"bootstrap.servers": "127.0.0.1:9092"})
for number in range(10):
    producer.produce("orders", key=f"customer {number % 3}", value=f"order {number}")
producer.flush()

consumer = Consumer({"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing", "auto.offset.reset": "earliest"})
consumer.subscribe(["orders"])
for message in consumer.consume(10, timeout=10):
    print(message.partition(), message.offset(), message.key().decode(), message.value().decode())
consumer.close()
"""


def kcat(kafka: Kafka, *arguments: str, stdin: str = "") -> str:
    """Run it, check that it logs nothing, and return its output."""
    if not KCAT:
        pytest.skip("kcat is not installed (Debian, Ubuntu: apt-get install kcat)")
    command = [KCAT, "-b", kafka.bootstrap, *arguments]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_kcat_lists_brokers_and_topics(kafka: Kafka, create: Callable[..., str]) -> None:
    topic = create(3)
    shown = kcat(kafka, "-L", "-t", topic)
    assert f"{BROKERS} brokers:" in shown
    assert all(f" at {address}" in shown for address in kafka.bootstrap.split(","))
    assert f'topic "{topic}" with 3 partitions:' in shown
    assert shown.count(", leader ") == 3
    assert f'topic "{topic}"' in kcat(kafka, "-L")


def test_kcat_publishes_and_reads(kafka: Kafka, create: Callable[..., str]) -> None:
    topic = create()
    kcat(kafka, "-P", "-t", topic, "-K", ":", "-H", "from=kcat", "-z", "lz4", stdin="a:1\nb:2\na:3\n")
    found = kcat(kafka, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p %o %k %s %h\n")
    assert found.splitlines() == ["0 0 a 1 from=kcat", "0 1 b 2 from=kcat", "0 2 a 3 from=kcat"]
    assert kcat(kafka, "-C", "-t", topic, "-o", "-1", "-e", "-q") == "3\n"
    assert kcat(kafka, "-Q", "-t", f"{topic}:0:-1").strip() == f"{topic} [0] offset 3"


def test_the_first_lines_that_a_user_tries(kafka: Kafka) -> None:
    program = FIRST_LINES.replace("127.0.0.1:9092", kafka.bootstrap.split(",")[0])
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=os.environ)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert sorted(rest for _, _, rest in rows) == sorted(f"customer {n % 3} order {n}" for n in range(10))
