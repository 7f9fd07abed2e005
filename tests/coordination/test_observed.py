"""Errors as one broker sees them: each reaches it only from a call that can mean it."""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from seaweedmq.coordination.observed import ObservedMetaStore
from seaweedmq.errors import InvalidArgument, LeaseEnded, ResourceExhausted, SeaweedMQError, Unavailable
from tests.sim.machines.etcd_errors import EtcdErrors
from tests.sim.machines.loop import Owner, SimLoop
from tests.sim.machines.meta import SimEtcd

CALLS: dict[str, Callable[[ObservedMetaStore], Awaitable[Any]]] = {
    "get": lambda store: store.get("/key"),
    "list": lambda store: store.list("/"),
    "transact": lambda store: store.transact([], []),
    "grant": lambda store: store.grant_lease(5),
    "renew": lambda store: store.renew_lease(1),
    "revoke": lambda store: store.revoke_lease(1),
}
FITS = {"transact": {"deposed": LeaseEnded, "invalid": InvalidArgument}}


@pytest.mark.parametrize("answer", ["unavailable", "exhausted", "invalid", "out of range", "deposed"])
@pytest.mark.parametrize("call", CALLS)
def test_an_error_that_does_not_fit_the_call_is_unavailable(call: str, answer: str) -> None:
    """OutOfRange of etcd would wrongly report to a publisher that its segment was pruned."""
    loop = SimLoop()
    etcd = SimEtcd(loop, random.Random(1))
    etcd.errors.append(EtcdErrors(rng=random.Random(1), answer=answer))
    store = ObservedMetaStore(etcd.client(Owner("broker")), random.Random(1))
    kind: type[SeaweedMQError] = FITS.get(call, {}).get(answer, Unavailable)
    if answer == "exhausted":
        kind = ResourceExhausted
    try:
        with pytest.raises(kind) as raised:
            loop.run_until_complete(CALLS[call](store))
    finally:
        loop.close()
    assert type(raised.value) is kind
