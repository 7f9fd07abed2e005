"""A lease outlives a held event loop, for a while: a standby thread renews it."""

import random
import time
from dataclasses import dataclass

import pytest

from seaweedmq.codec.state import keys
from seaweedmq.coordination.etcd import EtcdMetaStore
from seaweedmq.coordination.etcd_lease import EtcdLeaseRenewal
from seaweedmq.coordination.local import LocalEtcd
from seaweedmq.coordination.session import Session
from seaweedmq.coordination.standby import LOOP_HELD_S_MAX, LeaseStandby, is_due
from seaweedmq.errors import Unavailable
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.runtime.process.boot_clock import boot_s

TTL_S = 2.0
ME = BrokerInfo(id="b-1", address="h:1", started_us=0, pid=1, version="0")


@dataclass
class Lease:
    """A lease that a test renews."""

    lease: int = 7
    ttl_s: float = 10.0
    deadline_s: float = 110.0
    renewed_s: float = 100.0

    def extend(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s


def test_the_standby_renews_only_what_the_loop_should_have_renewed_and_gives_up_in_the_end() -> None:
    lease = Lease()
    assert not is_due(lease, 105.0), "the loop is about to"
    assert is_due(lease, 106.5)
    assert not is_due(lease, 110.5), "the lease may have expired: nothing may be done under it"
    assert not is_due(Lease(lease=0), 106.5)
    lease, now = Lease(), 100.0
    while now < 1_000 and lease.deadline_s > now:
        if is_due(lease, now):
            lease.extend(now + lease.ttl_s)
        now += 0.5
    assert LOOP_HELD_S_MAX < now - lease.renewed_s < LOOP_HELD_S_MAX + lease.ttl_s + 1


def test_an_etcd_that_is_unreachable_is_named() -> None:
    renewal = EtcdLeaseRenewal("127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"no etcd endpoint renews the lease, the last one 127\.0\.0\.1:1"):
        renewal(7, 0.5)


@pytest.mark.integration
async def test_a_held_loop_keeps_its_lease(etcd: LocalEtcd) -> None:
    store = EtcdMetaStore(etcd.endpoint, timeout_s=0.5, rng=random.Random(1))
    renewal = EtcdLeaseRenewal(f"127.0.0.1:1,{etcd.endpoint}")
    standby = LeaseStandby(renewal)
    session = Session(store, TTL_S, random.Random(1), boot_s, standby)
    await session.open(ME)
    time.sleep(3 * TTL_S)  # noqa: ASYNC251 - a handler without turns
    assert session.alive()
    assert standby.renewals >= 2
    entry = await store.get(keys.broker_key(ME.id))
    assert entry.lease == session.lease
    await session.close()
    assert await store.get(keys.broker_key(ME.id)) is None
    assert renewal(entry.lease, 2.0) == 0, "an expired lease stays expired"
    standby.stop()
    renewal.close()
    await store.close()
