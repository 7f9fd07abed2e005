"""What etcd refuses, and what must never be written, checked before it is asked, alike on every adapter."""

from collections.abc import Sequence

from seaweedmq.codec import keys
from seaweedmq.errors import InvalidArgument
from seaweedmq.ports import Compare, Delete, Put

TRANSACTION_OPS_MAX = 128
"""etcd's default ``--max-txn-ops``, for the compares and for the changes, each."""
CHANGES_PER_TRANSACTION = 100
"""Of a write that is cut into several: leaves room for the compares that guard each, and a few changes besides."""
COMPARES_PER_TRANSACTION = 120
"""The same of the compares."""
TRANSACTION_BYTES_MAX = 1_400_000
"""Below etcd's default ``--max-request-bytes`` of 1.5 MiB, less what the encoding adds."""
LEASED = (keys.LEADER, keys.BROKERS, keys.ADDRESSES, keys.LEFT)
"""Keys that say that somebody lives, or left of late: without a lease they would say so for ever."""


def check_transaction(compares: Sequence[Compare], then: Sequence[Put | Delete]) -> None:
    """Raise InvalidArgument for a transaction that a default etcd refuses: too many parts, too large, a key twice.

    AssertionError for a presence without a lease: whoever writes that has lost the lease, and did not notice.
    """
    for what, count in (("compares", len(compares)), ("changes", len(then))):
        if count > TRANSACTION_OPS_MAX:
            raise InvalidArgument(
                f"a metadata transaction has {count} {what}, etcd takes {TRANSACTION_OPS_MAX}: make several of it"
            )
    size_bytes = sum(len(op.key) + (len(op.value) if isinstance(op, Put) else 0) for op in then)
    if size_bytes > TRANSACTION_BYTES_MAX:
        raise InvalidArgument(
            f"a metadata transaction has {size_bytes} bytes, etcd takes {TRANSACTION_BYTES_MAX}: make several of it"
        )
    put_keys: set[str] = set()
    for op in then:
        if isinstance(op, Put):
            if op.key in put_keys:
                raise InvalidArgument(f"a metadata transaction puts {op.key!r} twice: a key changes once a revision")
            put_keys.add(op.key)
            if not op.lease and op.key.startswith(LEASED):
                raise AssertionError(f"{op.key!r} would be written without a lease, and nobody would ever delete it")
    for op in then:
        if isinstance(op, Delete):
            hit = [key for key in put_keys if key == op.key or (op.prefix and key.startswith(op.key))]
            if hit:
                raise InvalidArgument(
                    f"a metadata transaction puts and deletes {hit[0]!r}: a key changes once a revision"
                )
