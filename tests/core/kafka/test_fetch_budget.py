"""Distribution of a reply's bytes over its partitions (KIP-74), and the readable bytes that end a long poll."""

from seaweedmq.core.kafka.fetch_budget import FetchBudget, FetchWait


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


def test_the_bytes_of_all_partitions_count_each_as_it_was_counted_last() -> None:
    wait = FetchWait[str](bytes_min=100, reply_bytes_max=1_000)
    wait.count("orders", 60)
    wait.count("orders", 70)
    assert not wait.is_enough
    wait.count("bills", 30)
    assert wait.is_enough
    wait.count("bills", 0)
    assert not wait.is_enough, "the partition moved"


def test_no_more_is_waited_for_than_a_reply_may_hold() -> None:
    wait = FetchWait[str](bytes_min=100, reply_bytes_max=40)
    wait.count("orders", 39)
    assert not wait.is_enough
    wait.count("orders", 40)
    assert wait.is_enough


def test_a_client_that_asks_for_nothing_waits_for_nothing() -> None:
    assert FetchWait[str](bytes_min=0, reply_bytes_max=40).is_enough
