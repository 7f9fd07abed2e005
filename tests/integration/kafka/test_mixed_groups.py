"""Groups of different clients and kinds, and topics that grow and appear while a group reads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.integration.kafka import confluent_client
from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.members import CLIENTS, Member, process, shared, until
from tests.integration.kafka.records import TIMEOUT_S, Sent
from tests.integration.kafka.streams import Stream, leaving, numbers

pytestmark = pytest.mark.integration


def test_clients_of_all_kinds_and_ages_share_one_group(
    kafka: Kafka, create: Callable[..., str], others: Callable[[str], Path]
) -> None:
    topic = create(8)
    members: list[Member] = []
    old = process("librdkafka", kafka.bootstrap, "mixed", topic, others("librdkafka 2.0"))
    try:
        with leaving(members):
            members += [Member(client, kafka.bootstrap, "mixed", topic) for client in CLIENTS]
            until(lambda: [len(member.mine) for member in members] == [2, 2, 2], "each has two of eight partitions")
            left = set(range(8)).difference(*(member.mine for member in members))
            assert old.stdout is not None
            while set(map(int, old.stdout.readline().split())) != left:
                assert old.poll() is None
    finally:
        old.kill()
        old.wait()


def test_partitions_that_are_added_are_read(kafka: Kafka, create: Callable[..., str]) -> None:
    topic = create(2)
    members: list[Member] = []
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    with leaving(members):
        members += [Member("librdkafka", kafka.bootstrap, "growing", topic) for _ in range(2)]
        until(lambda: shared(members, 2), "two members share two partitions")
        with Stream(kafka.bootstrap, topic, 2) as before:
            until(lambda: before.kept > 20, "something is kept")
            admin.create_partitions([NewPartitions(topic, 6)])[topic].result(TIMEOUT_S)
            until(lambda: shared(members, 6), "two members share six partitions")
        with Stream(kafka.bootstrap, topic, 6) as after:
            until(lambda: after.kept > 60, "something is kept")
        sent = sorted([*range(before.sent), *range(after.sent)])
        until(lambda: len(numbers(members)) >= len(sent), "everything is read")
    assert numbers(members) == sent


def test_topics_that_appear_are_read_by_who_subscribed_to_their_names(kafka: Kafka) -> None:
    members: list[Member] = []
    with leaving(members):
        members.append(Member("librdkafka", kafka.bootstrap, "pattern", "^pattern-.*"))
        for number in range(2):
            confluent_client.publish(kafka.bootstrap, f"pattern-{number}", [Sent(None, b"%d" % number)])
            until(lambda: len(members[0].got) == number + 1, "the new topic is read")  # noqa: B023 - at once
    assert numbers(members) == [0, 1]


@pytest.mark.deep
def test_the_command_line_shows_and_serves_both_kinds_of_groups(kafka: Kafka, create: Callable[..., str]) -> None:
    cluster, group = kafka.cluster, create(10, 2)
    topic, members = f"kafka/{group}", list[Member]()

    def command(*arguments: str) -> Any:
        return json.loads(cluster.ok("group", *arguments, "--output", "json"))

    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(100):
        producer.produce(group, b"%d" % number, partition=number % 10)
    assert producer.flush(TIMEOUT_S) == 0
    cluster.ok("subscribe", topic, "--group", group)
    with leaving(members):
        members += [Member("librdkafka", kafka.bootstrap, group, group, auto_commit_interval_ms=100) for _ in range(2)]
        until(lambda: shared(members, 10), "two members share the partitions")
        until(lambda: numbers(members) == list(range(100)), "everything is read")
        until(lambda: command("describe", group, "--kind", "kafka")["lag_records"] == 0, "everything is committed")
        listed = [row for row in command("list") if row["group"] == group]
        assert [(row["kind"], row["topic"], row["members"], row["state"]) for row in listed] == [
            ("native", topic, 0, None),
            ("kafka", None, 2, "Stable"),
        ]
        assert command("describe", group)["kind"] == command("describe", group, "--kind", "native")["kind"] == "native"
        found = command("describe", group, "--kind", "kafka")
        assert (found["state"], len(found["members"])) == ("Stable", 2)
        assert [(o["partition"], o["committed"]) for o in found["offsets"]] == [(p, 10) for p in range(10)]
        elsewhere = cluster.run("group", "reset", group, "kafka/elsewhere", "--to", "earliest")
        assert elsewhere.status == 1
        assert f"group {group} does not read kafka/elsewhere" in elsewhere.error
        refused = cluster.run("group", "delete", group, "--kind", "kafka", "--force")
        assert refused.status == 1
        assert "has 2 members, which track their own positions: stop them, then delete it" in refused.error
    cluster.ok("group", "delete", group)
    text = cluster.ok("group", "describe", group)
    assert "kafka" in text
    assert "no members" in text
    cluster.ok("group", "reset", group, topic, "--to", "offset:5")
    three = Member("librdkafka", kafka.bootstrap, group, group)
    with leaving([three]):
        until(lambda: len(three.got) == 50, "half of the records are read again")
    cluster.ok("group", "delete", group)
    assert cluster.run("group", "describe", group).status == 1
