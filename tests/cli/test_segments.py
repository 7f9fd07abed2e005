"""Manual changes of segments on a real cluster: no record is lost, and bad input gets a clear error."""

import json
import time
from typing import Any

import pytest

import seaweedmq
from seaweedmq.model.ring import slot_of
from tests.support.commands import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]  # a command takes seconds on a busy machine


def segments(cluster: Cluster, topic: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = json.loads(cluster.ok("segment", "list", topic, "--output", "json"))
    return listed


def opened(cluster: Cluster, topic: str) -> dict[int, list[int]]:
    """Return the slots of each open segment."""
    return {s["id"]: s["slots"] for s in segments(cluster, topic) if s["state"] == "open"}


def changed(cluster: Cluster, *arguments: str) -> list[int]:
    """Run a change, and return the ids of the successors that it opened."""
    fields = json.loads(cluster.ok("segment", *arguments, "--output", "json"))
    return [s["id"] for s in fields["successors"]]


def test_a_topic_is_split_merged_sealed_and_moved_under_its_records(cluster: Cluster) -> None:
    topic = "hand/all"
    cluster.ok("topic", "create", topic, "--scaling", "fixed")
    with seaweedmq.connect(cluster.addresses) as client, client.publisher(topic) as publisher:
        published = 0

        def publish() -> None:
            nonlocal published
            for number in range(published, published + 200):
                publisher.send(b"%d" % number, key=b"key-%d" % (number % 50))
            publisher.flush(30)
            published += 200

        publish()
        assert "split 0 into 1 [0, 20000) at " in cluster.ok("segment", "split", topic, "0", "--at", "20000")
        assert opened(cluster, topic) == {1: [0, 20_000], 2: [20_000, 65_536]}
        publish()
        assert len(changed(cluster, "split", topic, "2")) == 2
        publish()
        assert changed(cluster, "merge", topic, "1", "3") == [5]
        publish()
        assert changed(cluster, "seal", topic, "5") == [6]
        publish()
        address = next(a for a in cluster.addresses.split(",") if [a] != _brokers(cluster, topic, 6))
        assert address in cluster.ok("segment", "move", topic, "6", address)
        publish()

        with client.subscriber(topic, start="earliest", stop_at="latest") as subscriber:
            messages = list(subscriber)
    assert sorted(int(m.value) for m in messages) == list(range(published))
    last: dict[bytes | None, tuple[int, int]] = {}
    for message in messages:
        now = (int(message.value), message.offset)
        before = last.get(message.key, (-1, -1))
        assert now[0] > before[0]
        assert now[1] > before[1]
        last[message.key] = now
    after = segments(cluster, topic)
    assert ([s["id"] for s in after], after[7]["brokers"]) == (list(range(8)), [address])


def _brokers(cluster: Cluster, topic: str, segment: int) -> list[str]:
    return next(list(s["brokers"]) for s in segments(cluster, topic) if s["id"] == segment)


@pytest.mark.deep
def test_bad_input_says_what_is_wrong_and_changes_nothing(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "hand/bad", "--segments", "4", "--scaling", "fixed")
    for arguments, message in (
        (["split", "hand/bad", "0", "--at", "16384"], "slot"),
        (["split", "hand/none", "0"], "hand/none"),
        (["merge", "hand/bad", "0", "2"], "adjacent"),
        (["seal", "hand/bad", "99"], "99"),
        (["move", "hand/bad", "0", "127.0.0.1:1"], "127.0.0.1:1"),
        (["split", "bad", "0"], "NAMESPACE/NAME"),
    ):
        done = cluster.run("segment", *arguments)
        assert (done.status, done.stdout) == (1, b""), arguments
        assert message in done.error
    assert list(opened(cluster, "hand/bad")) == [0, 1, 2, 3]


@pytest.mark.deep
def test_partitions_are_added_and_neither_split_nor_merged(cluster: Cluster) -> None:
    topic = "hand/_parts"
    assert cluster.ok("topic", "create", topic, "--partitions", "3") == f"created {topic} with 3 partitions\n"
    cluster.ok("publish", topic, stdin=b"one\ntwo\n")
    for arguments in (["split", topic, "0"], ["merge", topic, "0", "1"]):
        error = cluster.run("segment", *arguments).failure
        assert "has 3 partitions, which publishers choose and which cannot be" in error
    grown = json.loads(cluster.ok("topic", "alter", topic, "--partitions", "5", "--output", "json"))
    assert (grown["partitions"], grown["scaling"]) == (5, "fixed")
    assert [s["slots"] for s in segments(cluster, topic)] == [[p, p + 1] for p in range(5)]
    assert "their number only grows" in cluster.run("topic", "alter", topic, "--partitions", "4").failure
    assert sorted(cluster.run("subscribe", topic, "--format", "raw").stdout.split()) == [b"one", b"two"]
    slots = {s["id"]: s["slots"][0] for s in segments(cluster, topic)}
    printed = [json.loads(line) for line in cluster.ok("subscribe", topic).splitlines()]
    assert [record["partition"] for record in printed] == [slots[record["segment"]] for record in printed]


@pytest.mark.deep
def test_records_of_a_partition_are_deleted_before_an_offset(cluster: Cluster) -> None:
    topic = "hand/purged"
    cluster.ok("topic", "create", topic, "--partitions", "1")
    cluster.ok("publish", topic, stdin=b"one\ntwo\nthree\n")
    purge = ["topic", "delete-records", topic, "--partition", "0", "--before"]
    assert cluster.ok(*purge, "2") == f"partition 0 of {topic} begins at offset 2\n"
    assert cluster.run("subscribe", topic, "--format", "raw").stdout == b"three\n"
    shown = json.loads(cluster.ok(*purge, "1", "--output", "json"))
    assert shown == {"topic": topic, "partition": 0, "low_watermark": 2}
    assert "has committed records up to offset 3, not to 4" in cluster.run(*purge, "4").failure
    cluster.ok("topic", "create", "hand/ranges")
    error = cluster.run("topic", "delete-records", "hand/ranges", "--partition", "0", "--before", "0").failure
    assert "has key ranges instead of partitions" in error


@pytest.mark.deep
def test_replicas_are_moved_and_too_many_or_the_same_broker_twice_refused(cluster: Cluster) -> None:
    topic = "hand/two"
    cluster.ok("topic", "create", topic, "--replicas", "2", "--scaling", "fixed")
    addresses = cluster.addresses.split(",")
    for brokers in (addresses, [addresses[0], addresses[0]]):
        error = cluster.run("segment", "move", topic, "0", *brokers).failure
        assert "replica" in error or "twice" in error
    wanted = list(reversed(_brokers(cluster, topic, 0)))
    assert (changed(cluster, "move", topic, "0", *wanted), _brokers(cluster, topic, 1)) == ([1], wanted)
    assert cluster.ok("segment", "move", topic, "1", *wanted) == "segment 1 is already there\n"
    assert changed(cluster, "move", topic, "1", *wanted) == []


def test_a_quiet_cluster_has_nothing_to_rebalance(cluster: Cluster) -> None:
    cluster.ok("topic", "create", "hand/quiet")
    cluster.ok("cluster", "rebalance")  # a balancer that has just started may want to spread the segments
    assert isinstance(json.loads(cluster.ok("cluster", "rebalance", "--output", "json")), list)
    status = json.loads(cluster.ok("cluster", "status", "--output", "json"))
    assert isinstance(status["decisions"], list)


@pytest.mark.deep
def test_a_hot_key_that_can_not_be_split_is_the_topics_status(cluster: Cluster) -> None:
    topic, key = "hand/hot", b"hot"
    cluster.ok("topic", "create", topic, "--scaling", "auto", "--target-records", "5")
    slot = slot_of(key)
    [_, upper] = changed(cluster, "split", topic, "0", "--at", str(slot))
    [narrow, _] = changed(cluster, "split", topic, str(upper), "--at", str(slot + 1))
    with seaweedmq.connect(cluster.addresses) as client, client.publisher(topic) as publisher:
        deadline = time.monotonic() + 60
        status = "ok"
        while status == "ok":
            assert time.monotonic() < deadline, "nothing was said of the hot key"
            for _ in range(1_000):
                publisher.send(b"value", key=key)
            status = json.loads(cluster.ok("topic", "describe", topic, "--output", "json"))["status"]
    assert f"segment {narrow} " in status
    assert "cannot be split" in status
    decisions = json.loads(cluster.ok("cluster", "status", "--output", "json"))["decisions"]
    assert ("hold", topic, [narrow]) in [(d["kind"], d["topic"], d["segments"]) for d in decisions]
