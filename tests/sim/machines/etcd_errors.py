"""Error answers of the simulated etcd: affected calls and brokers, and whether the request was applied.

An etcd that is out of space rejects puts and leases, but serves reads, deletes and renewals. Any call may return any
other error.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, ResourceExhausted, SeaweedMQError, Unavailable
from seaweedmq.ports import Delete, Put


class MetaCall(StrEnum):
    """A call of ``ports.MetaStore``."""

    GET = "get"
    LIST = "list"
    TRANSACT = "transact"
    WATCH = "watch"
    GRANT = "grant"
    RENEW = "renew"
    REVOKE = "revoke"


ANSWERS: Mapping[str, SeaweedMQError] = {
    "unavailable": Unavailable("etcd failed (unavailable: etcdserver: no leader): retry"),
    "exhausted": ResourceExhausted("etcd is at a limit (etcdserver: too many requests): raise its quota"),
    "invalid": InvalidArgument("etcd refused the request: etcdserver: duplicate key given in txn request"),
    "out of range": OutOfRange("etcd: etcdserver: mvcc: required revision has been compacted: list again"),
    "deposed": LeaseEnded("etcd: the lease is gone: register again under a new lease"),
}
"""Every kind of error that a caller of the port may receive, by name; see ``coordination.etcd_answers``."""
NO_SPACE = "etcd is at a limit (etcdserver: mvcc: database space exceeded): compact and defragment it"


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdErrors:
    """Error answers to some calls, until they end."""

    rng: random.Random
    answer: str
    """A name in ``ANSWERS``, or "no space"."""
    calls: frozenset[MetaCall] = frozenset(MetaCall)
    machine: str | None = None
    """The machine whose calls fail; None for all machines."""
    share: float = 1.0
    is_applied: bool = False
    """Whether the request is applied before it fails; only the answer "unavailable" leaves that open."""

    def __str__(self) -> str:
        if self.answer == "no space":
            return f"etcd is out of space for {self.machine or 'every broker'}"
        which = "every call" if len(self.calls) == len(MetaCall) else ", ".join(sorted(self.calls))
        when = " once it is applied" if self.is_applied else ""
        return f"etcd answers {which} of {self.machine or 'every broker'} with {self.answer!r}{when} ({self.share:.0%})"

    def error(self, call: MetaCall, changes: Sequence[Put | Delete], machine: str) -> SeaweedMQError | None:
        """Return the error that this call receives, or None if it succeeds.

        Args:
            changes: The changes of a transaction.
        """
        if self.machine not in (None, machine):
            return None
        if self.answer == "no space":
            takes_space = call is MetaCall.GRANT or any(isinstance(change, Put) for change in changes)
            return ResourceExhausted(NO_SPACE) if takes_space else None
        if call not in self.calls or (self.share < 1 and self.rng.random() >= self.share):
            return None
        known = ANSWERS[self.answer]
        return type(known)(*known.args)
