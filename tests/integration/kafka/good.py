"""A good producer and a good group, at work while others do what they should not."""

from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from tests.integration.kafka.members import Member, until
from tests.integration.kafka.streams import Stream, leaving, numbers
from tests.support.commands import Cluster

GROWTH_BYTES_MAX = 96 << 20
"""Of a broker, over all tests of a module: buffers, and what the allocator keeps of them."""
PARTITIONS = 4


class Good:
    """They want nothing but to go on."""

    def __init__(self, stream: Stream, member: Member) -> None:
        self.stream = stream
        self.member = member

    def goes_on(self) -> None:
        """Something that is sent from now on is kept and read."""
        sent = self.stream.sent + 5
        until(lambda: self.stream.kept > sent and len(self.member.got) > sent, "a good client goes on")


def resident_bytes(cluster: Cluster) -> list[int]:
    """Of each broker."""
    return [psutil.Process(pid).memory_info().rss for pid in cluster.pids]


@contextmanager
def at_work(cluster: Cluster, topic: str) -> Iterator[Good]:
    """In the end, nothing that they sent is lost or twice, and the brokers have not grown."""
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
