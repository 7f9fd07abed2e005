"""Consumer groups as their clients form them: members share partitions, come, leave and die, and reading continues."""

from collections.abc import Callable

import pytest

from tests.integration.kafka.conftest import Kafka
from tests.integration.kafka.members import CLIENTS, COOPERATIVE, Member, process, shared, until
from tests.integration.kafka.records import TIMEOUT_S
from tests.integration.kafka.streams import Stream, leaving, numbers

pytestmark = pytest.mark.integration

PARTITIONS = 10
SESSION_S = 6.0


@pytest.mark.parametrize("client", CLIENTS)
def test_a_group_grows_from_one_to_five_and_shrinks(kafka: Kafka, create: Callable[..., str], client: str) -> None:
    topic = create(PARTITIONS, 2)
    members: list[Member] = []
    with Stream(kafka.bootstrap, topic, PARTITIONS) as stream, leaving(members):
        for size in (1, 2, 5):
            while len(members) < size:
                members.append(Member(client, kafka.bootstrap, f"grows-{client}", topic))
            until(lambda: shared(members, PARTITIONS), f"{size} members share the partitions")
        for gone in (1, 2):
            # One after another: librdkafka that is closed during a rebalance of others leaves the group first, and its
            # last commit is then an unknown member's.
            members[gone - 1].leave()
            until(lambda: shared(members[gone:], PARTITIONS), f"{5 - gone} members share the partitions")  # noqa: B023
        stream.__exit__()
        until(lambda: set(numbers(members)) == set(range(stream.sent)), "everything is read")
        got = numbers(members)  # members that leave together at the end may reread its records
    assert got == list(range(stream.sent)), "a member that gives a partition away commits before"


def ends(member: Member, partitions: int) -> set[int]:
    """Return the last value of each partition."""
    last = {got.partition: int(got.value or b"") for got in member.got}
    return set(last.values()) if len(last) == partitions else set()


@pytest.mark.parametrize("client", CLIENTS)
def test_what_a_killed_member_had_goes_to_the_others(kafka: Kafka, create: Callable[..., str], client: str) -> None:
    topic = create(4)
    group = f"killed-{client}"
    members: list[Member] = []
    victim = process(client, kafka.bootstrap, group, topic)
    try:
        assert victim.stdout is not None
        while len(victim.stdout.readline().split()) != 4:
            assert victim.poll() is None
        with Stream(kafka.bootstrap, topic, 4) as stream, leaving(members):
            members.append(Member(client, kafka.bootstrap, group, topic))
            until(lambda: len(members[0].mine) == 2, "two members share the partitions")
            victim.kill()
            until(lambda: len(members[0].mine) == 4, "the one that is there has them all", SESSION_S + TIMEOUT_S)
            sent = stream.sent
            until(lambda: stream.sent > sent + 100, "the stream continues")
            stream.__exit__()
            until(lambda: ends(members[0], 4) >= set(range(stream.sent - 4, stream.sent)), "everything is read")
        for partition in range(4):
            offsets = {got.offset for got in members[0].got if got.partition == partition}
            assert len(offsets) == max(offsets) - min(offsets) + 1, "from the commit of the killed one on"
    finally:
        victim.kill()
        victim.wait()


@pytest.mark.parametrize("client", CLIENTS)
def test_a_static_member_that_restarts_has_its_share_again_and_nobody_notices(
    kafka: Kafka, create: Callable[..., str], client: str
) -> None:
    topic = create(4)
    group = f"static-{client}"
    members = [Member(client, kafka.bootstrap, group, topic, group_instance_id=f"i{n}") for n in range(2)]
    with leaving(members):
        until(lambda: shared(members, 4), "two members share the partitions")
        one, other = members
        share, before = one.mine, len(other.history)
        one.leave()
        again = Member(client, kafka.bootstrap, group, topic, group_instance_id="i0")
        members.append(again)
        until(lambda: again.mine == share, "its share is its own again")
        assert len(other.history) == before


@pytest.mark.parametrize("client", COOPERATIVE)
def test_with_the_cooperative_assignor_partitions_that_stay_are_not_given_away(
    kafka: Kafka, create: Callable[..., str], client: str
) -> None:
    topic, group = create(6), f"cooperative-{client}"
    members: list[Member] = []

    def join() -> None:
        strategy = COOPERATIVE[client]
        members.append(Member(client, kafka.bootstrap, group, topic, partition_assignment_strategy=strategy))

    with Stream(kafka.bootstrap, topic, 6) as stream, leaving(members):
        join()
        until(lambda: len(members[0].mine) == 6, "one has them all")
        join()
        until(lambda: shared(members, 6), "two members share the partitions")
        assert [len(mine) for mine in members[0].history] == [6, 3], "the remaining ones never moved"
        stream.__exit__()
        until(lambda: set(numbers(members)) == set(range(stream.sent)), "everything is read")
    assert numbers(members) == list(range(stream.sent))
