"""Distribution of a reply's bytes over its partitions (KIP-74), and the readable bytes that end a long poll."""

from seaweedmq.core.kafka.fetch_budget import FetchBudget, FetchWait


def test_the_first_batch_goes_whole_and_later_ones_only_if_they_fit() -> None:
    share = FetchBudget(100)
    assert share.fits(1_000, partition_left=10), "otherwise no client could ever read past it"
    share.took(1_000)
    assert share.of(50) == 0
    assert not share.fits(1, partition_left=50)
    share = FetchBudget(100)
    assert share.of(60) == 60
    share.took(60)
    assert share.of(60) == 40
    assert share.fits(40, partition_left=40)
    assert not share.fits(41, partition_left=60), "the reply is full"
    assert not share.fits(21, partition_left=20), "the partition is"
    share = FetchBudget(-5)
    assert share.of(10) == 0
    assert share.of(-10) == 0
    assert share.fits(10, partition_left=0)


def test_the_bytes_of_all_partitions_count_up_to_what_a_reply_may_hold() -> None:
    wait = FetchWait[str](bytes_min=100, reply_bytes_max=1_000)
    wait.count("orders", 60)
    wait.count("orders", 70)
    assert not wait.is_enough
    wait.count("bills", 30)
    assert wait.is_enough
    wait.count("bills", 0)
    assert not wait.is_enough, "the partition moved"
    wait = FetchWait[str](bytes_min=100, reply_bytes_max=40)
    wait.count("orders", 39)
    assert not wait.is_enough
    wait.count("orders", 40)
    assert wait.is_enough
    assert FetchWait[str](bytes_min=0, reply_bytes_max=40).is_enough
