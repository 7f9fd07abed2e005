"""Contents of a topic of Kafka clients as other readers find them, and checks of any reader's records."""

import itertools
from collections.abc import Iterable
from operator import itemgetter
from typing import NamedTuple

import seaweedmq
from tests.support.commands import Cluster


class Stored(NamedTuple):
    """A record, with texts in place of bytes."""

    partition: int
    offset: int
    key: str
    value: str


def stored(cluster: Cluster, topic: str) -> list[Stored]:
    """Return all records of a topic, by partition and offset, as SeaweedMQ's own client reads them."""
    with (
        seaweedmq.connect(cluster.addresses) as client,
        client.subscriber(f"kafka/{topic}", start="earliest", stop_at="latest") as subscriber,
    ):
        return sorted(
            Stored(message.partition, message.offset, (message.key or b"").decode(), (message.value or b"").decode())
            for message in subscriber
        )


def assert_whole(read: Iterable[tuple[int, int]]) -> None:
    """Check (partition, offset): no offset of a partition is missing, or there twice."""
    for partition, there in itertools.groupby(sorted(read), itemgetter(0)):
        offsets = [offset for _, offset in there]
        assert offsets == list(range(len(offsets))), f"partition {partition}"


def assert_in_order(read: Iterable[tuple[str, int, int, int]]) -> None:
    """Check (key, partition, offset, number): a key has one partition, along which its numbers rise."""
    for key, there in itertools.groupby(sorted(read), itemgetter(0)):
        _, partitions, _, numbers = zip(*there, strict=True)
        assert len(set(partitions)) == 1, f"{key} is in several partitions"
        assert list(numbers) == sorted(numbers), f"{key} is out of order"
