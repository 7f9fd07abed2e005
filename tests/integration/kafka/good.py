"""A good producer and a good group, at work while other clients misbehave."""

from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.integration.kafka.members import Member, until
from tests.integration.kafka.streams import Stream, leaving, numbers
from tests.support.commands import Cluster

GROWTH_BYTES_MAX = 96 << 20
"""Maximum growth of a broker in bytes, over all tests of a module: buffers, and the allocator's share of them."""
PARTITIONS = 4


class Good:
    """Clients that must not be disturbed."""

    def __init__(self, stream: Stream, member: Member) -> None:
        self.stream = stream
        self.member = member

    def goes_on(self) -> None:
        """Check that records sent from now on are acknowledged and read."""
        sent = self.stream.sent + 5
        until(lambda: self.stream.kept > sent and len(self.member.got) > sent, "a good client continues")


def resident_bytes(cluster: Cluster) -> list[int]:
    return [psutil.Process(pid).memory_info().rss for pid in cluster.pids]


@contextmanager
def at_work(cluster: Cluster, topic: str) -> Iterator[Good]:
    """Check at the end: no record is lost or twice, and the brokers have not grown."""
    members = [Member("librdkafka", cluster.kafka, topic, topic)]
    with leaving(members):
        with Stream(cluster.kafka, topic, PARTITIONS) as stream:
            good = Good(stream, members[0])
            good.goes_on()
            before = resident_bytes(cluster)
            yield good
            grown = [after - early for early, after in zip(before, resident_bytes(cluster), strict=True)]
        until(lambda: len(numbers(members)) >= stream.sent, "everything is read")
    assert numbers(members) == list(range(stream.sent))
    assert max(grown) < GROWTH_BYTES_MAX, grown
