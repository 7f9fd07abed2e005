"""Error kind and remedy of etcd's rejections, by gRPC status and message.

Pure. The statuses are those of etcd's ``api/v3rpc/rpctypes/error.go``; a proxy or a foreign server may send any other.
Only a rejection of the request itself is permanent. All causes that an operator can remove are retriable, so that
brokers wait for the operator instead of ending.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument, LeaseEnded, OutOfRange, ResourceExhausted, SeaweedMQError, Unavailable

NO_SPACE = "database space exceeded"
"""Part of etcd's message while the alarm NOSPACE is raised: it reads, renews and deletes, but takes no puts."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """The error that one rejection means to the callers of a metadata store."""

    kind: type[SeaweedMQError]
    remedy: str
    leaves_endpoint: bool = False
    """Whether another endpoint may answer the call."""


_LEASE_GONE = Meaning(LeaseEnded, "the lease is gone: register again under a new lease")
_INVALID = Meaning(InvalidArgument, "the request breaks a limit of etcd: send another one")
_TOO_LARGE = Meaning(InvalidArgument, "the request is too large: send a smaller one, or raise --max-request-bytes")
_LOGIN = Meaning(Unavailable, "it requires a login: allow access without one; retry")
_NO_SPACE = Meaning(
    ResourceExhausted,
    "its quota of space is used up: raise --quota-backend-bytes, or compact and defragment it, then disarm the alarm "
    "(etcdctl alarm disarm); retry",
)
_BUSY = Meaning(ResourceExhausted, "it has more requests than it can serve: give it a faster disk or CPU; retry")
_LIMIT = Meaning(ResourceExhausted, "it is at a limit: raise that limit; retry")
_REVISION = Meaning(OutOfRange, "it does not have that revision: list again")
_CORRUPT = Meaning(Unavailable, "its data is damaged: replace the member that `etcdctl alarm list` names; retry", True)
_FOREIGN = Meaning(Unavailable, "it does not know the call: name an etcd of version 3.4 or later; retry", True)
_FAILED = Meaning(Unavailable, "retry", True)

_MEANINGS: Sequence[tuple[str, str, Meaning]] = (
    ("NOT_FOUND", "lease", _LEASE_GONE),
    ("INVALID_ARGUMENT", "user name", _LOGIN),
    ("INVALID_ARGUMENT", "auth", _LOGIN),
    ("INVALID_ARGUMENT", "too large", _TOO_LARGE),
    ("INVALID_ARGUMENT", "", _INVALID),
    ("UNAUTHENTICATED", "", _LOGIN),
    ("PERMISSION_DENIED", "", _LOGIN),
    ("FAILED_PRECONDITION", "authentication", _LOGIN),
    ("RESOURCE_EXHAUSTED", "space exceeded", _NO_SPACE),
    ("RESOURCE_EXHAUSTED", "too many requests", _BUSY),
    ("RESOURCE_EXHAUSTED", "larger than max", _TOO_LARGE),
    ("RESOURCE_EXHAUSTED", "", _LIMIT),
    ("OUT_OF_RANGE", "TTL", _INVALID),
    ("OUT_OF_RANGE", "revision", _REVISION),
    ("DATA_LOSS", "", _CORRUPT),
    ("UNIMPLEMENTED", "", _FOREIGN),
)
"""Status name, part of the message, and meaning. The first match applies; any other status is ``_FAILED``."""


def meaning_of(status: str, message: str) -> Meaning:
    """Return the meaning of a rejection by the name of its gRPC status and etcd's message."""
    return next((m for code, part, m in _MEANINGS if code == status and part in message), _FAILED)
