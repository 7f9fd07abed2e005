"""Claims: files of the storage, each of which takes one number of one kind permanently.

Counters in etcd are set back when etcd is restored, and gone when it is lost. A claim outlives both.
"""

from enum import StrEnum


class ClaimKind(StrEnum):
    """Kind of the numbers that are claimed; the value is the name of the claims' folder."""

    PRODUCER_IDS = "producer-ids"
    """First id of each block of ids for Kafka's producers. The claim is empty."""
    NODE_IDS = "node-ids"
    """Number of each Kafka node. The claim holds the address of the broker, ``host:port``."""
