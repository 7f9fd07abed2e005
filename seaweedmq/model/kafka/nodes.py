"""Brokers as Kafka nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

NODES_MAX = 10_000
"""Addresses whose node ids are remembered."""
NODE_ID_MAX = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """The permanent node id of each address, by which clients keep connections and metadata."""

    cluster_id: str
    """22 characters of URL-safe base64, in Kafka's format."""
    ids: Mapping[str, int] = field(default_factory=dict)
    """``host:port`` that Kafka clients dial -> node id, from 1."""
    next_id: int = 1
    """Next free node id; ids are never reused."""


@dataclass(frozen=True, slots=True, order=True)
class Node:
    """A broker that serves Kafka clients."""

    id: int
    host: str
    port: int
