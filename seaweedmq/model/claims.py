"""Claims: files in the storage, each of which reserves one number of one kind permanently.

A restored etcd sets its counters back, and a lost etcd loses them. A claim survives both.
"""

from enum import StrEnum


class ClaimKind(StrEnum):
    """The kind of the claimed numbers; the value is the name of the claims' folder."""

    PRODUCER_IDS = "producer-ids"
    """First id of each block of ids for Kafka producers. The claim is empty."""
    NODE_IDS = "node-ids"
    """Number of each Kafka node. The claim holds the address of the broker, ``host:port``."""
