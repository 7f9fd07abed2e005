"""Errors as one broker sees them: each reaches it only from a call that can mean it."""

import contextlib
import itertools
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


def test_an_error_that_does_not_fit_the_call_is_unavailable() -> None:
    """OutOfRange of etcd would wrongly report to a publisher that its segment was pruned."""
    for call, answer in itertools.product(CALLS, ("unavailable", "exhausted", "invalid", "out of range", "deposed")):
        loop = SimLoop()
        etcd = SimEtcd(loop, random.Random(1))
        etcd.errors.append(EtcdErrors(rng=random.Random(1), answer=answer))
        store = ObservedMetaStore(etcd.client(Owner("broker")), random.Random(1))
        kind: type[SeaweedMQError] = FITS.get(call, {}).get(answer, Unavailable)
        if answer == "exhausted":
            kind = ResourceExhausted
        with contextlib.closing(loop), pytest.raises(SeaweedMQError) as raised:
            loop.run_until_complete(CALLS[call](store))
        assert type(raised.value) is kind, (call, answer)
