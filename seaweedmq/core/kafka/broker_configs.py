"""A broker's settings in terms of Kafka's configs, read-only: the configuration file changes them.

They have both the names of the corresponding Kafka configs, which tools expect, and names of SeaweedMQ: those of
``BrokerConfig`` with dots.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict

from seaweedmq.core.kafka.config_table import BOOLEAN, DOUBLE, INT, LIST, LONG, MAX_MESSAGE_BYTES, STRING, TOPIC_CONFIGS
from seaweedmq.core.kafka.config_values import ConfigSource, ConfigType, Described, Synonym
from seaweedmq.model.config import SETTINGS, BrokerConfig

PREFIX = "seaweedmq."
MS_PER_S = 1_000
_USUAL = BrokerConfig()
_TYPES = {bool: BOOLEAN, int: LONG, float: DOUBLE, str: STRING}


def _ms(duration_s: float) -> int:
    return round(duration_s * MS_PER_S)


_AS_IN_KAFKA: Mapping[str, tuple[ConfigType, Callable[[BrokerConfig], object], str]] = {
    "auto.create.topics.enable": (
        BOOLEAN,
        lambda c: c.kafka_auto_create,
        "Whether a client's metadata request for a missing topic creates it.",
    ),
    "connections.max.idle.ms": (
        LONG,
        lambda c: _ms(c.kafka_connection_idle_s),
        "Time without requests after which a connection is closed.",
    ),
    "delete.topic.enable": (BOOLEAN, lambda _: True, "Whether topics can be deleted."),
    "log.cleanup.policy": (LIST, lambda _: "delete", "Policy for old records."),
    "log.flush.interval.ms": (
        LONG,
        lambda c: _ms(c.flush_interval_s),
        "Longest time from written to flushed, in topics with durability replicated.",
    ),
    "log.retention.bytes": (LONG, lambda _: -1, "Size of a partition; -1: no limit."),
    "log.retention.check.interval.ms": (
        LONG,
        lambda c: _ms(c.maintenance_interval_s),
        "Time between two checks of the files for retention.",
    ),
    "log.retention.ms": (LONG, lambda _: -1, "Time that records are kept; -1: no limit."),
    "max.connections": (INT, lambda c: c.kafka_connections_max, "Connections of Kafka clients."),
    "message.max.bytes": (
        INT,
        lambda c: min(int(TOPIC_CONFIGS[MAX_MESSAGE_BYTES].default), c.frame_bytes_max),
        "Largest accepted batch, unless the topic has its own limit.",
    ),
    "min.insync.replicas": (INT, lambda _: 1, "Fewest replicas for acks=all, unless the topic has its own limit."),
    "num.partitions": (
        INT,
        lambda c: c.kafka_partitions_default,
        "Partitions of a topic that is created without a number of them.",
    ),
    "offsets.topic.num.partitions": (
        INT,
        lambda c: c.kafka_internal_partitions,
        "Partitions of __consumer_offsets at its creation.",
    ),
    "replica.lag.time.max.ms": (
        LONG,
        lambda c: _ms(c.replica_timeout_s),
        "Time without progress after which a follower is dropped.",
    ),
    "socket.request.max.bytes": (INT, lambda c: c.kafka_request_bytes_max, "Largest request, in bytes."),
}
"""Name -> type, value, and description."""
_FETCH_BYTES = (
    "Largest reply to Fetch, in bytes, unless its first batch is larger: half of the memory for all replies, which "
    "kafka_fetch_bytes_max and memory_bytes_max limit, and at most 55 MiB."
)


def describe_broker(
    config: BrokerConfig, known: Mapping[str, str | int | None], fetch_bytes_max: int
) -> list[Described]:
    """Return all configs of a broker, by name; ``known`` has further facts, such as its addresses."""
    described = [
        _described(name, kind, _text(value(config)), _text(value(_USUAL)), about)
        for name, (kind, value, about) in _AS_IN_KAFKA.items()
    ]
    described += [
        _described(name, INT if isinstance(value, int) else STRING, str(value), None, "Property of this broker.")
        for name, value in known.items()
    ]
    fetch_bytes = str(fetch_bytes_max)
    is_usual = config.kafka_fetch_bytes_max == _USUAL.kafka_fetch_bytes_max
    described.append(_described("fetch.max.bytes", INT, fetch_bytes, fetch_bytes if is_usual else None, _FETCH_BYTES))
    described += [
        _described(
            PREFIX + name.replace("_", "."),
            _TYPES[type(value)],
            _text(value),
            _text(SETTINGS[name].default),
            f"The setting {name} of the configuration file.",
        )
        for name, value in asdict(config).items()
    ]
    return sorted(described, key=lambda entry: entry.name)


def _described(name: str, kind: ConfigType, value: str, usual: str | None, about: str) -> Described:
    source = ConfigSource.DEFAULT_CONFIG if value == usual else ConfigSource.STATIC_BROKER_CONFIG
    synonyms = [Synonym(name, value, source)]
    if usual is not None and source is not ConfigSource.DEFAULT_CONFIG:
        synonyms.append(Synonym(name, usual, ConfigSource.DEFAULT_CONFIG))
    return Described(
        name=name, value=value, source=source, type=kind, documentation=about, read_only=True, synonyms=tuple(synonyms)
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
