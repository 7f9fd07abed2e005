"""Topics in terms of Kafka's configs: set values, effective values, and changes.

A setting with a field in SeaweedMQ is kept there; ``Topic.configs`` has all others, as they were set.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum

from seaweedmq.core.kafka.config_table import (
    DURABILITY,
    LOCAL_RETENTION_MS,
    MAX_COMPACTION_LAG_MS,
    MAX_MESSAGE_BYTES,
    MIN_COMPACTION_LAG_MS,
    MIN_INSYNC_REPLICAS,
    RETENTION_BYTES,
    RETENTION_MS,
    SCALING,
    SEGMENT_BYTES,
    SEGMENT_MS,
    TOPIC_CONFIGS,
)
from seaweedmq.core.kafka.config_values import (
    LONG_MAX,
    Config,
    ConfigMisnamed,
    ConfigSource,
    ConfigType,
    Described,
    InvalidConfig,
    Synonym,
    items_of,
)
from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicChange, TopicName, TopicSpec
from seaweedmq.model.topic_settings import Configs, check_configs

MS_PER_S = 1_000
UNLIMITED = "-1"
_FIELDS = (RETENTION_MS, RETENTION_BYTES, DURABILITY, SCALING)
"""Configs that are kept in fields of the topic."""


class AlterOp(IntEnum):
    """The operation of IncrementalAlterConfigs on a config, in Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Alteration:
    """One step of IncrementalAlterConfigs."""

    name: str
    op: int
    value: str | None


def config_named(name: str) -> Config:
    """Return the config of this name, or raise InvalidConfig."""
    config = TOPIC_CONFIGS.get(name)
    if config is None:
        raise InvalidConfig(f"there is no topic config {name[:100]!r}: use a name of Apache Kafka 4.1 or seaweedmq.*")
    return config


def parse_configs(configs: Mapping[str, str | None], *, replicas: int) -> dict[str, str]:
    """Return the configs of a client, where None means no value, as a topic keeps them.

    Raises InvalidConfig if a name is unknown, a value is not allowed, or two values contradict each other.
    """
    parsed = {name: config_named(name).parsed(value) for name, value in configs.items()}
    _check_together(parsed, replicas)
    return parsed


def _check_together(configs: Mapping[str, str], replicas: int) -> None:
    insync = _whole(configs, MIN_INSYNC_REPLICAS, 1)
    if insync > replicas:
        raise InvalidConfig(
            f"config {MIN_INSYNC_REPLICAS} is {insync}, and the topic has {replicas} replicas, so nothing could be "
            "produced: give at most as many"
        )
    lag, lag_max = _whole(configs, MIN_COMPACTION_LAG_MS, 0), _whole(configs, MAX_COMPACTION_LAG_MS, LONG_MAX)
    if lag > lag_max:
        raise InvalidConfig(
            f"config {MIN_COMPACTION_LAG_MS} is {lag}: give at most {MAX_COMPACTION_LAG_MS}, which is {lag_max}"
        )
    try:
        check_configs(_without_fields(configs), replicas)
    except InvalidArgument as error:
        raise InvalidConfig(str(error)) from error


def _whole(configs: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number, or the default: SeaweedMQ's own tools set any text where a config has no effect."""
    try:
        return int(configs.get(name, default))
    except ValueError:
        return default


def spec_of(name: TopicName, *, partitions: int, replicas: int, configs: Mapping[str, str]) -> TopicSpec:
    """Return the spec of a topic with these parsed configs."""
    retention_bytes = _total_bytes(configs, partitions)
    return TopicSpec(
        name=name,
        partitions=partitions,
        replicas=replicas,
        durability=Durability(configs[DURABILITY]) if DURABILITY in configs else None,
        scaling=Scaling(configs[SCALING]) if SCALING in configs else None,
        retention_s=_retention_s(configs) or None,
        retention_bytes=retention_bytes or None,
        configs=_without_fields(configs),
    )


def change_of(topic: Topic, configs: Mapping[str, str], *, partitions: int | None = None) -> TopicChange:
    """Return the change to these parsed configs alone; the limit per partition is multiplied by ``partitions``."""
    count = partitions or partitions_of(topic)
    return TopicChange(
        partitions=partitions,
        durability=Durability(configs.get(DURABILITY, default_durability(topic.replicas))),
        scaling=Scaling(configs[SCALING]) if SCALING in configs else None,
        retention_s=_retention_s(configs),
        retention_bytes=_total_bytes(configs, count),
        configs=_without_fields(configs),
    )


def partitions_of(topic: Topic | TopicSpec) -> int:
    """Return the number of partitions that Kafka clients see, or would see if the topic were visible."""
    return topic.partitions or (topic.segments_min if isinstance(topic, Topic) else topic.segments)


def default_durability(replicas: int) -> Durability:
    """Return the default durability of a topic."""
    return Durability.STORED if replicas == 1 else Durability.REPLICATED


def _retention_s(configs: Mapping[str, str]) -> float:
    """Return the retention, 0 for no limit. Kafka removes everything at 0, and nothing at -1."""
    retention_ms = int(configs.get(RETENTION_MS, UNLIMITED))
    return 0.0 if retention_ms < 0 else max(retention_ms, 1) / MS_PER_S


def _total_bytes(configs: Mapping[str, str], partitions: int) -> int:
    """Return the limit of the whole topic, 0 for no limit."""
    each = int(configs.get(RETENTION_BYTES, UNLIMITED))
    return 0 if each < 0 else max(each, 1) * partitions


def _without_fields(configs: Mapping[str, str]) -> Configs:
    return tuple(sorted((name, value) for name, value in configs.items() if name not in _FIELDS))


def configs_of(topic: Topic | TopicSpec) -> dict[str, str]:
    """Return the set configs of a topic by name, from its fields and its settings by name."""
    configs = dict(topic.configs)
    if topic.retention_s is not None:
        # Decimal of the text: a float of 2^42 seconds and more, times a thousand, gives another millisecond.
        configs[RETENTION_MS] = str(max(1, round(Decimal(repr(topic.retention_s)) * MS_PER_S)))
    if topic.retention_bytes is not None:
        configs[RETENTION_BYTES] = str(max(1, topic.retention_bytes // partitions_of(topic)))
    if topic.durability not in (None, default_durability(topic.replicas)):
        configs[DURABILITY] = str(topic.durability)
    return dict(sorted(configs.items()))


def altered_configs(topic: Topic, steps: Sequence[Alteration]) -> dict[str, str]:
    """Return a topic's set configs after these steps; raise InvalidConfig if one is illegal, or two name one config."""
    configs = configs_of(topic)
    times = Counter(step.name for step in steps)
    if twice := sorted(name for name, named in times.items() if named > 1):
        raise ConfigMisnamed(f"config {twice[0]} is changed twice in one request: change it once")
    for step in steps:
        if step.op == AlterOp.DELETE:
            configs.pop(step.name, None)  # any name: another version may have set an unknown one
            continue
        config = config_named(step.name)
        if step.value is None:
            raise ConfigMisnamed(f"config {step.name} has no value: give one, or delete the config for its default")
        if step.op == AlterOp.SET:
            configs[step.name] = config.parsed(step.value)
        elif step.op in (AlterOp.APPEND, AlterOp.SUBTRACT):
            configs[step.name] = _with_items(config, configs.get(step.name, config.default), step)
        else:
            raise InvalidConfig(f"operation {step.op} on config {step.name} is unknown: use 0 to 3")
    _check_together(configs, topic.replicas)
    return configs


def _with_items(config: Config, value: str, step: Alteration) -> str:
    if config.type is not ConfigType.LIST:
        raise InvalidConfig(f"config {config.name} is not a list: set it instead of appending or subtracting")
    given = items_of(config.parsed(step.value))
    if step.op == AlterOp.SUBTRACT:
        return ",".join(item for item in items_of(value) if item not in given)
    return ",".join(dict.fromkeys((*items_of(value), *given)))


def describe_configs(topic: Topic | TopicSpec, limits: BrokerConfig) -> list[Described]:
    """Return all configs of a topic or spec with their effective values, by name."""
    given = configs_of(topic)
    defaults = _true_defaults(topic, limits)
    return [_described(config, given.get(name), defaults.get(name, config.default)) for name, config in _ALL]


_ALL = tuple(TOPIC_CONFIGS.items())


def _true_defaults(topic: Topic | TopicSpec, limits: BrokerConfig) -> dict[str, str]:
    """Return the defaults that depend on the topic or the broker."""
    roll_age_s = limits.log_roll_age_s if topic.partitions is None else limits.partition_roll_age_s
    return {
        DURABILITY: default_durability(topic.replicas),
        SEGMENT_BYTES: str(limits.log_roll_bytes),
        SEGMENT_MS: str(round(roll_age_s * MS_PER_S)),
        MAX_MESSAGE_BYTES: str(min(int(TOPIC_CONFIGS[MAX_MESSAGE_BYTES].default), limits.frame_bytes_max)),
        LOCAL_RETENTION_MS: str(round(limits.log_grace_s * MS_PER_S)),
    }


def _described(config: Config, given: str | None, default: str) -> Described:
    fallback = Synonym(config.synonym, default, ConfigSource.DEFAULT_CONFIG)
    own = () if given is None else (Synonym(config.name, given, ConfigSource.DYNAMIC_TOPIC_CONFIG),)
    first, *_ = synonyms = (*own, fallback)
    return Described(
        name=config.name,
        value=first.value,
        source=first.source,
        type=config.type,
        documentation=config.documentation,
        synonyms=synonyms,
    )
