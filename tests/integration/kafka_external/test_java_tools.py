"""Apache Kafka's own tools have the documented effects on a cluster."""

import json
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.kafka_external.brought import kafka_jars
from tests.integration.kafka_external.java_tools import TIMEOUT_S, Tools, events, table
from tests.integration.kafka_external.stored import assert_in_order, assert_whole, stored
from tests.support.commands import Cluster
from tests.support.kafka_wire import partition_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

COOPERATIVE = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"


@pytest.fixture(scope="session")
def jars() -> Path:
    return kafka_jars()


@pytest.fixture(scope="session")
def tools(jars: Path, cluster: Cluster) -> Tools:
    return Tools(jars, cluster.kafka)


def offsets(tools: Tools, topic: str, moment: str = "latest") -> dict[int, int]:
    """Return offsets by partition, as kafka-get-offsets prints them."""
    printed = tools.ok("GetOffsetShell", "--topic", topic, "--time", moment)
    return {int(line.split(":")[1]): int(line.split(":")[2]) for line in printed.splitlines()}


def test_topics_are_made_shown_grown_and_deleted(tools: Tools) -> None:
    shape = ("--partitions", "3", "--replication-factor", "2", "--config", "retention.ms=3600000")
    assert "Created topic t-orders." in tools.ok("TopicCommand", "--create", "--topic", "t-orders", *shape)
    said = tools.refused("TopicCommand", "--create", "--topic", "t-orders")
    assert "TopicExistsException" in said
    assert "InvalidTopicException" in tools.refused("TopicCommand", "--create", "--topic", "bad/name")
    tools.ok("TopicCommand", "--alter", "--topic", "t-orders", "--partitions", "5")
    described = tools.ok("TopicCommand", "--describe", "--topic", "t-orders")
    assert re.search(r"PartitionCount: 5\tReplicationFactor: 2\tConfigs: retention.ms=3600000", described), described
    lines = re.findall(r"Partition: (\d)\tLeader: (\d)\tReplicas: ([\d,]+)\tIsr: ([\d,]+)", described)
    assert [line[0] for line in lines] == ["0", "1", "2", "3", "4"]
    for _, leader, replicas, in_sync in lines:
        assert replicas.startswith(leader)
        assert sorted(in_sync) == sorted(replicas)
    assert tools.ok("TopicCommand", "--describe", "--under-replicated-partitions") == ""
    tools.ok("TopicCommand", "--delete", "--topic", "t-orders")
    assert "t-orders" not in tools.ok("TopicCommand", "--list").split()


def test_configs_are_shown_and_altered(tools: Tools) -> None:
    tools.ok("TopicCommand", "--create", "--topic", "configured", "--partitions", "1")
    of_topic = ("--entity-type", "topics", "--entity-name", "configured")
    alter = ("kafka.admin.ConfigCommand", "--alter", *of_topic)
    describe = ("kafka.admin.ConfigCommand", "--describe", *of_topic)
    tools.ok(*alter, "--add-config", "retention.ms=7200000,max.message.bytes=2000000")
    assert "retention.ms=7200000" in tools.ok(*describe)
    tools.ok(*alter, "--delete-config", "retention.ms")
    said = tools.ok(*describe)
    assert "max.message.bytes=2000000" in said
    assert "retention.ms" not in said
    assert "retention.ms=-1 " in tools.ok(*describe, "--all")
    assert "InvalidConfigurationException" in tools.refused(*alter, "--add-config", "retention.ms=soon")
    assert "message.max.bytes" in tools.ok("kafka.admin.ConfigCommand", "--describe", "--all", "--broker", "1")


def test_console_records_are_read_counted_and_deleted(tools: Tools, cluster: Cluster, tmp_path: Path) -> None:
    tools.ok("TopicCommand", "--create", "--topic", "console", "--partitions", "2")
    lines = [f"k{n}:v{n}" for n in range(500)]
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    tools.ok("ConsoleProducer", "--topic", "console", *keyed, stdin="\n".join(lines))
    show = ("--property", "print.key=true", "--property", "key.separator=:")
    read = ("--from-beginning", "--max-messages", "500", "--timeout-ms", "30000")
    assert sorted(tools.ok("consumer.ConsoleConsumer", "--topic", "console", *read, *show).split()) == sorted(lines)
    whole = stored(cluster, "console")
    assert sorted(f"{record.key}:{record.value}" for record in whole) == sorted(lines)
    assert all(record.partition == partition_of(record.key.encode(), 2) for record in whole)
    ends = offsets(tools, "console")
    assert sum(ends.values()) == 500
    before = {"partitions": [{"topic": "console", "partition": 0, "offset": 50}], "version": 1}
    (tmp_path / "before.json").write_text(json.dumps(before))
    said = tools.ok("DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "before.json"))
    assert "console-0\tlow_watermark: 50" in said
    assert offsets(tools, "console", "earliest") == {0: 50, 1: 0}
    assert offsets(tools, "console") == ends
    assert stored(cluster, "console") == [record for record in whole if (record.partition, record.offset) >= (0, 50)]
    said = tools.ok("LogDirsCommand", "--describe", "--topic-list", "console")
    dirs = json.loads(said[said.index("{") :])
    sizes = [p["size"] for broker in dirs["brokers"] for p in broker["logDirs"][0]["partitions"]]
    assert len(sizes) >= 2
    assert all(sizes)


def test_a_group_is_shown_reset_and_deleted(tools: Tools) -> None:
    tools.ok("TopicCommand", "--create", "--topic", "grouped", "--partitions", "2")
    values = [f"v{n}" for n in range(40)]
    tools.ok("ConsoleProducer", "--topic", "grouped", stdin="\n".join(values))
    ends = offsets(tools, "grouped")
    read = ("--from-beginning", "--max-messages", "40", "--timeout-ms", "30000", "--group", "g-console")
    assert sorted(tools.ok("consumer.ConsoleConsumer", "--topic", "grouped", *read).split()) == sorted(values)
    groups = "consumer.group.ConsumerGroupCommand"
    assert ["g-console", "Empty"] in table(tools.ok(groups, "--list", "--state"), ["GROUP", "STATE"])
    columns = ["PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]

    def described() -> list[list[int]]:
        rows = table(tools.ok(groups, "--describe", "--group", "g-console"), columns)
        return sorted([int(cell) for cell in row] for row in rows)

    assert described() == [[p, end, end, 0] for p, end in sorted(ends.items())]
    reset = (groups, "--reset-offsets", "--group", "g-console", "--execute")
    tools.ok(*reset, "--all-topics", "--to-earliest")
    tools.ok(*reset, "--topic", "grouped:1", "--to-latest")
    assert described() == [[0, 0, ends[0], ends[0]], [1, ends[1], ends[1], 0]]
    said = tools.ok(groups, "--delete-offsets", "--group", "g-console", "--topic", "grouped:1")
    assert "Successful" in said
    assert described() == [[0, 0, ends[0], ends[0]]]
    assert "was successful" in tools.ok(groups, "--delete", "--group", "g-console")
    assert "GroupIdNotFoundException" in tools.refused(groups, "--describe", "--group", "g-console")


def test_who_wants_the_new_group_protocol_is_told_to_take_the_classic_one(tools: Tools) -> None:
    tools.ok("TopicCommand", "--create", "--topic", "newly-grouped", "--partitions", "1")
    wanted = ("--topic", "newly-grouped", "--group", "g-new", "--consumer-property", "group.protocol=consumer")
    said = tools.refused("consumer.ConsoleConsumer", *wanted, "--timeout-ms", "30000")
    assert "Set group.protocol=classic" in said


def test_many_records_go_in_and_out(tools: Tools, cluster: Cluster) -> None:
    settings = ("--producer-props", f"bootstrap.servers={tools.bootstrap}", "acks=all", "compression.type=lz4")
    amount = ("--num-records", "200000", "--payload-monotonic", "--throughput", "-1")
    assert "200000 records sent" in tools.raw("ProducerPerformance", "--topic", "perf", *amount, *settings)
    assert sorted(int(record.value) for record in stored(cluster, "perf")) == list(range(200_000))
    said = tools.ok("ConsumerPerformance", "--topic", "perf", "--messages", "200000", "--timeout", "30000")
    assert said.splitlines()[-1].split(", ")[4] == "200000", said


def test_tools_that_look_at_the_cluster(tools: Tools) -> None:
    versions = tools.ok("BrokerApiVersionsCommand")
    assert len(re.findall(r"\(id: \d+ rack: null isFenced: false\)", versions)) == 3, versions
    assert re.search(r"Fetch\(1\): 4 to 17 \[usable: 17\]", versions)
    said = tools.ok("LeaderElectionCommand", "--election-type", "preferred", "--all-topic-partitions")
    assert "Error" not in said
    assert "No partition reassignments found." in tools.ok("reassign.ReassignPartitionsCommand", "--list")


class Running:
    """A verifiable consumer in a group, and its output."""

    def __init__(self, tools: Tools, name: str, folder: Path) -> None:
        group = ("--topic", "verified", "--group-id", "g-verified", "--reset-policy", "earliest", "--verbose")
        command = tools.command("VerifiableConsumer", *group, "--assignment-strategy", COOPERATIVE)
        self._out = folder / f"{name}.json"
        with self._out.open("wb") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)

    def said(self, name: str) -> list[dict[str, object]]:
        whole = self._out.read_text().rpartition("\n")[0]
        return [event for event in events(whole) if event["name"] == name]

    def owned(self) -> set[int]:
        found: set[int] = set()
        for event in events(self._out.read_text().rpartition("\n")[0]):
            partitions = {p["partition"] for p in event.get("partitions", ())}
            if event["name"] == "partitions_assigned":
                found |= partitions
            elif event["name"] == "partitions_revoked":
                found -= partitions
        return found

    def until_owns(self, count: int) -> None:
        end = time.monotonic() + TIMEOUT_S
        while len(self.owned()) != count:
            assert time.monotonic() < end, self._out.read_text()
            assert self.process.poll() is None, self._out.read_text()
            time.sleep(0.1)

    def leave(self) -> None:
        """Send SIGTERM, upon which it leaves the group."""
        self.process.terminate()
        self.process.wait(TIMEOUT_S)


@pytest.fixture
def consumers() -> Iterator[list[Running]]:
    """Consumers that a test starts, which end with it."""
    started: list[Running] = []
    yield started
    for consumer in started:
        consumer.process.kill()
        consumer.process.wait()


def test_a_cooperative_group_hands_over_and_reads_everything_once(
    tools: Tools, cluster: Cluster, tmp_path: Path, consumers: list[Running]
) -> None:
    tools.ok("TopicCommand", "--create", "--topic", "verified", "--partitions", "4", "--replication-factor", "3")

    def produce(count: int, first: int) -> None:
        amount = ("--max-messages", str(count), "--value-prefix", str(first))
        said = events(tools.ok("VerifiableProducer", "--topic", "verified", "--repeating-keys", "50", *amount))
        assert said[-1]["acked"] == count, said[-1]

    produce(500, 1)
    consumers.append(Running(tools, "one", tmp_path))
    consumers[0].until_owns(4)
    consumers.append(Running(tools, "two", tmp_path))
    consumers[0].until_owns(2)
    consumers[1].until_owns(2)
    kept = consumers[0].owned()
    produce(500, 2)
    consumers[0].leave()
    consumers[1].until_owns(4)
    produce(200, 3)
    ends = offsets(tools, "verified")
    assert sum(ends.values()) == 1_200

    def seen() -> list[Any]:
        return [event for consumer in consumers for event in consumer.said("record_data")]

    end = time.monotonic() + TIMEOUT_S
    while len(seen()) < 1_200:
        assert time.monotonic() < end, len(seen())
        time.sleep(0.1)
    consumers[1].leave()
    read = [(e["partition"], e["offset"], e["key"], e["value"]) for e in seen()]
    sent = [(str(n % 50), f"{first}.{n}") for first, count in ((1, 500), (2, 500), (3, 200)) for n in range(count)]
    assert sorted((key, value) for *_, key, value in read) == sorted(sent)
    assert_whole((partition, offset) for partition, offset, *_ in read)
    assert_in_order((key, partition, offset, sent.index((key, value))) for partition, offset, key, value in read)
    assert sorted(read) == [tuple(record) for record in stored(cluster, "verified")]
    revoked = consumers[0].said("partitions_revoked")[0]["partitions"]
    assert {p["partition"] for p in revoked} == {0, 1, 2, 3} - kept  # type: ignore[attr-defined]
    assert all(event["success"] for consumer in consumers for event in consumer.said("offsets_committed"))
