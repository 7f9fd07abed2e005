"""The brokers as Kafka's clients number them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NODES_MAX = 10_000
"""Addresses whose numbers are remembered."""
NODE_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """Which number belongs to which address, for good: clients keep connections and metadata by it."""

    cluster_id: str
    """22 characters of URL-safe base64, as Kafka's own."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """``host:port`` that Kafka's clients dial -> number of the node, from 1."""
    next_id: int = 1
    """Numbers are not used twice."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A broker that serves Kafka's clients."""

    id: int
    host: str
    port: int
