"""Distribution of a reply's bytes over its partitions (KIP-74)."""

from seaweedmq.core.kafka.fetch_budget import FetchBudget


def test_the_first_batch_goes_whole_and_later_ones_only_if_they_fit() -> None:
    share = FetchBudget(100)
    assert share.fits(1_000, partition_left=10), "otherwise no client could ever read past it"
    share.took(1_000)
    assert share.of(50) == 0
    assert not share.fits(1, partition_left=50)


def test_a_partition_gets_what_it_may_of_the_rest() -> None:
    share = FetchBudget(100)
    assert share.of(60) == 60
    share.took(60)
    assert share.of(60) == 40
    assert share.fits(40, partition_left=40)
    assert not share.fits(41, partition_left=60), "the reply is full"
    assert not share.fits(21, partition_left=20), "the partition is"


def test_limits_below_zero_are_none() -> None:
    share = FetchBudget(-5)
    assert share.of(10) == 0
    assert share.of(-10) == 0
    assert share.fits(10, partition_left=0)
