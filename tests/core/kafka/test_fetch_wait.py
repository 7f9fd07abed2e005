"""A long poll ends when the readable bytes reach the requested minimum, or the maximum of a reply."""

from seaweedmq.core.kafka.fetch_budget import FetchWait


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
