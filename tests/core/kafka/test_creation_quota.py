"""The quota of topic creations of a client: a burst, and a rate per minute from then on."""

from seaweedmq.core.kafka.creation_quota import CreationQuota


def test_a_client_gets_its_quota_at_once_and_then_as_it_refills_or_is_given_back() -> None:
    quota = CreationQuota(per_minute_max=60)
    assert quota.take("a", 3_000, now=0.0) == 60
    assert quota.take("a", 3_000, now=0.5) == 0
    assert quota.take("a", 3_000, now=10.0) == 10
    assert quota.take("b", 5, now=10.0) == 5, "each client has its own"
    assert quota.take("a", 3_000, now=1_000.0) == 60, "no more than a minute's is saved up"
    quota = CreationQuota(per_minute_max=60)
    for _ in range(100):
        assert quota.take("a", 60, now=0.0) == 60
        quota.give_back("a", 60)
    quota.give_back("a", 60)
    assert quota.take("a", 100, now=0.0) == 60, "no more than a minute's"
    quota = CreationQuota(per_minute_max=1, clients_max=2)
    for number, client in enumerate("abcd"):
        assert quota.take(client, 1, now=float(number)) == 1
    assert quota.take("d", 1, now=4.0) == 0
    assert quota.take("a", 1, now=4.0) == 1
