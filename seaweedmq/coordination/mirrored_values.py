"""Values of the metadata keys that a cluster view mirrors."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from seaweedmq.codec.state import keys, metadata
from seaweedmq.codec.state.cluster import identity_from_json
from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.broker import BrokerInfo
from seaweedmq.model.cluster import ClusterIdentity
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Deletion, LowWatermarks, Topic
from seaweedmq.ports import Entry, Snapshot

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LeaderLock:
    """The holder of the leader lock."""

    broker_id: str


@dataclass(frozen=True, slots=True)
class Departure:
    """The departure of a broker that left in good order."""

    broker_id: str


@dataclass(frozen=True, slots=True)
class StaleRegistration:
    """A registration without a lease."""


Value: TypeAlias = (
    LeaderLock | Departure | StaleRegistration | BrokerInfo | Topic | Segment | LowWatermarks | Deletion | None
)
"""The decoded value of a key; None if the key is not mirrored or not readable."""


def identity_in(snapshot: Snapshot) -> ClusterIdentity | None:
    """Return the identity of the cluster; None if the snapshot has none, or it is not readable."""
    for entry in snapshot.entries:
        if entry.key == keys.CLUSTER:
            try:
                return identity_from_json(entry.value)
            except (Corrupt, Unsupported) as error:
                _log.error("etcd key ignored: %r: %s", entry.key, error)
    return None


def read_value(entry: Entry) -> Value:
    """Decode an entry; return None, with an error in the log, if it is not readable."""
    key = entry.key
    try:
        if not entry.lease and key.startswith((keys.BROKERS, keys.ADDRESSES)):
            return StaleRegistration()
        for prefix, decode, key_of in _DECODERS:
            if key.startswith(prefix):
                value: Value = decode(entry.value)
                if key_of(value) != key:
                    raise Corrupt(f"its value belongs to {key_of(value)!r}")
                return value
        if key.startswith(keys.LEFT):
            return Departure(keys.parse_left_key(key))
        if key == keys.LEADER:
            return LeaderLock(entry.value.decode())
    except (Corrupt, Unsupported, UnicodeDecodeError) as error:
        _log.error("etcd key ignored: %r: %s", key, error)
    return None


_DECODERS: Sequence[tuple[str, Callable[[bytes], Any], Callable[[Any], str]]] = (
    (keys.SEGMENTS, metadata.segment_from_json, lambda segment: keys.segment_key(segment.topic, segment.id)),
    (keys.TOPICS, metadata.topic_from_json, lambda topic: keys.topic_key(topic.name)),
    (keys.LOW_WATERMARKS, metadata.low_watermarks_from_json, lambda low: keys.low_watermarks_key(low.name)),
    (keys.DELETIONS, metadata.deletion_from_json, lambda deletion: keys.deletion_key(deletion.name)),
    (keys.BROKERS, metadata.broker_from_json, lambda info: keys.broker_key(info.id)),
)
"""Prefix of the keys of a kind, decoder of its values, and the key that a value must have."""
