"""Limits of metadata transactions, checked before the call and alike on every adapter."""

from collections.abc import Sequence

from seaweedmq.codec.state import keys
from seaweedmq.errors import InvalidArgument
from seaweedmq.ports import Compare, Delete, Put

TRANSACTION_OPS_MAX = 128
"""Limit of etcd's default ``--max-txn-ops``, for compares and for changes each."""
CHANGES_PER_TRANSACTION = 100
"""Changes in each transaction of a split write. It leaves room for the guarding compares and a few other changes."""
COMPARES_PER_TRANSACTION = 120
"""Compares in each transaction of a split write."""
TRANSACTION_BYTES_MAX = 1_400_000
"""Limit in bytes, below etcd's default ``--max-request-bytes`` of 1.5 MiB, less the overhead of its encoding."""
LEASED = (keys.LEADER, keys.BROKERS, keys.ADDRESSES, keys.LEFT)
"""Keys that declare a live broker, or one that left recently. Without a lease they would do so forever."""


def check_transaction(compares: Sequence[Compare], then: Sequence[Put | Delete]) -> None:
    """Raise InvalidArgument if a transaction is too large for a default etcd, or changes a key twice.

    A key of ``LEASED`` without a lease is an AssertionError: its writer has lost the lease without noticing.
    """
    for what, count in (("compares", len(compares)), ("changes", len(then))):
        if count > TRANSACTION_OPS_MAX:
            raise InvalidArgument(
                f"a metadata transaction has {count} {what}, etcd takes {TRANSACTION_OPS_MAX}: split it"
            )
    size_bytes = sum(len(op.key) + (len(op.value) if isinstance(op, Put) else 0) for op in then)
    if size_bytes > TRANSACTION_BYTES_MAX:
        raise InvalidArgument(
            f"a metadata transaction has {size_bytes} bytes, etcd takes {TRANSACTION_BYTES_MAX}: split it"
        )
    put_keys: set[str] = set()
    for op in then:
        if isinstance(op, Put):
            if op.key in put_keys:
                raise InvalidArgument(f"a metadata transaction puts {op.key!r} twice: a key changes once a revision")
            put_keys.add(op.key)
            if not op.lease and op.key.startswith(LEASED):
                raise AssertionError(f"{op.key!r} would be written without a lease, so that it would never be deleted")
    for op in then:
        if isinstance(op, Delete):
            hit = [key for key in put_keys if key == op.key or (op.prefix and key.startswith(op.key))]
            if hit:
                raise InvalidArgument(
                    f"a metadata transaction puts and deletes {hit[0]!r}: a key changes once a revision"
                )
