"""Topic configs of Kafka clients: accepted values, effective settings and descriptions."""

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seaweedmq.core.kafka.config_table import TOPIC_CONFIGS
from seaweedmq.core.kafka.config_values import ConfigSource, ConfigType, Described, InvalidConfig
from seaweedmq.core.kafka.topic_configs import (
    Alteration,
    AlterOp,
    altered_configs,
    change_of,
    configs_of,
    describe_configs,
    parse_configs,
    spec_of,
)
from seaweedmq.core.lineage.topology import altered, new_topic
from seaweedmq.model.config import MIB, BrokerConfig
from seaweedmq.model.topic import Durability, Scaling, Topic, TopicName

LIMITS = BrokerConfig()
NAME = TopicName("kafka", "orders")
KAFKA_4_1 = """
cleanup.policy compression.gzip.level compression.lz4.level compression.type compression.zstd.level delete.retention.ms
file.delete.delay.ms flush.messages flush.ms follower.replication.throttled.replicas index.interval.bytes
leader.replication.throttled.replicas local.retention.bytes local.retention.ms max.compaction.lag.ms max.message.bytes
message.timestamp.after.max.ms message.timestamp.before.max.ms message.timestamp.type min.cleanable.dirty.ratio
min.compaction.lag.ms min.insync.replicas preallocate remote.log.copy.disable remote.log.delete.on.disable
remote.storage.enable retention.bytes retention.ms segment.bytes segment.index.bytes segment.jitter.ms segment.ms
unclean.leader.election.enable
"""


def topic(replicas: int = 1, partitions: int = 4, **configs: str) -> Topic:
    """A topic that a Kafka client created; dots of the configs are underscores here."""
    given = {name.replace("_", "."): value for name, value in configs.items()}
    parsed = parse_configs(given, replicas=replicas)
    spec = spec_of(NAME, partitions=partitions, replicas=replicas, configs=parsed)
    placement = [("b-1", "b-2", "b-3")[:replicas]] * partitions
    return new_topic(spec, uid=7, now_us=0, placement=placement).topic


def changed(before: Topic, *steps: Alteration) -> Topic:
    """Alter a topic step by step, as the leader does for a client."""
    return altered(before, change_of(before, altered_configs(before, steps)))


def delete(name: str) -> Alteration:
    return Alteration(name, AlterOp.DELETE, None)


def described(of: Topic, name: str) -> Described:
    return next(config for config in describe_configs(of, LIMITS) if config.name == name)


def refusal(given: dict[str, str | None], replicas: int = 1) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse_configs(given, replicas=replicas)
    return str(caught.value)


# --- table
def test_the_table_has_every_name_of_kafka_with_a_default_and_what_has_no_effect_says_so() -> None:
    assert set(TOPIC_CONFIGS) == {
        *KAFKA_4_1.split(),
        "seaweedmq.auto.compact",
        "seaweedmq.durability",
        "seaweedmq.scaling",
    }
    for name, config in TOPIC_CONFIGS.items():
        assert not config.default or config.parsed(config.default) == config.default, name
    assert "without effect" in TOPIC_CONFIGS["compression.type"].documentation
    assert "without effect" not in TOPIC_CONFIGS["retention.ms"].documentation


# --- rejected values
@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("retention.ms", "a week", "a whole number from -1"),
        ("retention.ms", "-2", "a whole number from -1"),
        ("retention.ms", "9223372036854775808", "a whole number"),
        ("segment.bytes", "2147483648", "to 2,147,483,647"),
        ("segment.bytes", "1e6", "a whole number"),
        ("segment.ms", "0", "from 1"),
        ("min.cleanable.dirty.ratio", "1.5", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("preallocate", "yes", "one of true, false"),
        ("cleanup.policy", "forget", "one of delete, compact"),
        ("cleanup.policy", "compact,forget", "one of delete, compact"),
        ("compression.type", "rar", "one of uncompressed"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("seaweedmq.durability", "hoped", "one of replicated, stored"),
        ("seaweedmq.scaling", "auto", "one of fixed"),
        ("max.message.bytes", "2147483648", "to 2,147,483,647"),
        ("segment.bytes", "1048575", "from 1,048,576"),
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("compression.gzip.level", "10", "from 1 to 9, or -1"),
        ("leader.replication.throttled.replicas", "x", "* or partition:broker"),
        ("follower.replication.throttled.replicas", "0:1,2", "* or partition:broker"),
        ("remote.storage.enable", "true", "one of false"),
        ("leader.replication.throttled.replicas", "0:1," * 300, "at most 1,024 characters"),
    ],
)
def test_a_bad_value_is_refused_by_name_and_rule(name: str, value: str, rule: str) -> None:
    message = refusal({name: value})
    assert name in message
    assert rule in message


def test_a_bad_name_a_missing_value_and_values_that_contradict_are_refused() -> None:
    for configs, replicas, rule in (
        ({"retention.hours": "7"}, 1, "there is no topic config 'retention.hours'"),
        ({"retention.ms": None}, 1, "config retention.ms has no value"),
        ({"min.insync.replicas": "3"}, 2, "the topic has 2 replicas"),
        ({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "9"}, 1, "min.compaction.lag.ms is 10"),
    ):
        assert rule in refusal(configs, replicas)
    assert parse_configs({"min.insync.replicas": "2"}, replicas=2) == {"min.insync.replicas": "2"}


def test_what_kafka_takes_is_taken_even_no_cleanup_policy() -> None:
    for name, value in (
        ("max.message.bytes", "2147483647"),
        ("segment.bytes", "1048576"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "1"),
        ("leader.replication.throttled.replicas", "*"),
        ("leader.replication.throttled.replicas", ""),
        ("follower.replication.throttled.replicas", "0:1,1:2"),
        ("remote.storage.enable", "false"),
        ("cleanup.policy", ""),
    ):
        assert parse_configs({name: value}, replicas=1) == {name: value}
    kept = changed(topic(), Alteration("cleanup.policy", AlterOp.SUBTRACT, "delete"))
    assert configs_of(kept) == {"cleanup.policy": ""}
    assert described(kept, "cleanup.policy").value == ""
    assert not kept.settings.expires
    assert not kept.settings.compacts


# --- effective settings
def test_nothing_set_is_a_topic_that_keeps_everything_and_what_has_no_field_is_kept_by_name() -> None:
    plain = topic()
    assert (plain.partitions, plain.retention_s, plain.retention_bytes, plain.configs) == (4, None, None, ())
    assert (plain.durability, plain.scaling) == (Durability.STORED, Scaling.FIXED)
    assert configs_of(plain) == {}
    kept = topic(segment_ms=" 60000 ", compression_type="zstd", cleanup_policy="compact, delete,compact")
    assert dict(kept.configs) == {"segment.ms": "60000", "compression.type": "zstd", "cleanup.policy": "compact,delete"}
    assert kept.settings.roll_age_s == 60.0
    assert kept.settings.compacts


def test_retention_is_a_time_and_a_size_of_each_partition() -> None:
    kept = topic(retention_ms="604800000", retention_bytes="1000")
    assert (kept.retention_s, kept.retention_bytes) == (604_800.0, 4_000)
    assert configs_of(kept) == {"retention.bytes": "1000", "retention.ms": "604800000"}
    assert topic(retention_ms="-1").retention_s is None
    assert topic(retention_ms="0").retention_s == 0.001
    before = topic(retention_bytes="1000")
    after = change_of(before, configs_of(before), partitions=6)
    assert (after.partitions, after.retention_bytes) == (6, 6_000)


def test_durability_is_a_config_and_deleted_to_the_usual_one() -> None:
    assert topic(replicas=3).durability is Durability.REPLICATED
    stored = topic(replicas=3, seaweedmq_durability="stored")
    assert stored.durability is Durability.STORED
    assert configs_of(stored) == {"seaweedmq.durability": "stored"}
    stored = topic(replicas=2, seaweedmq_durability="stored")
    assert changed(stored, delete("seaweedmq.durability")).durability is Durability.REPLICATED


# --- descriptions
def test_all_configs_are_described_with_what_is_set_and_what_would_hold_without() -> None:
    assert [config.name for config in describe_configs(topic(), LIMITS)] == sorted(TOPIC_CONFIGS)
    retention = described(topic(retention_ms="1000"), "retention.ms")
    assert (retention.value, retention.source) == ("1000", ConfigSource.DYNAMIC_TOPIC_CONFIG)
    assert (retention.type, retention.read_only) == (ConfigType.LONG, False)
    assert [(s.name, s.value, s.source) for s in retention.synonyms] == [
        ("retention.ms", "1000", ConfigSource.DYNAMIC_TOPIC_CONFIG),
        ("log.retention.ms", "-1", ConfigSource.DEFAULT_CONFIG),
    ]
    values = {config.name: config.value for config in describe_configs(topic(replicas=2), LIMITS)}
    assert values["retention.ms"] == "-1"
    assert values["segment.ms"] == "600000"
    assert values["segment.bytes"] == str(128 * MIB)
    assert values["local.retention.ms"] == "600000"
    assert values["max.message.bytes"] == "1048588"
    assert values["seaweedmq.durability"] == "replicated"
    assert {config.source for config in describe_configs(topic(), LIMITS)} == {ConfigSource.DEFAULT_CONFIG}
    small = replace(LIMITS, frame_bytes_max=65_536)
    values = {config.name: config.value for config in describe_configs(topic(), small)}
    assert values["max.message.bytes"] == "65536"


# --- step by step
def test_configs_and_items_of_lists_are_set_and_taken_away_and_others_stay() -> None:
    before = topic(retention_ms="1000", segment_ms="60000")
    after = changed(before, delete("segment.ms"), Alteration("retention.bytes", AlterOp.SET, "5"))
    assert configs_of(after) == {"retention.bytes": "5", "retention.ms": "1000"}
    gone = changed(after, delete("retention.ms"), delete("retention.bytes"))
    assert configs_of(gone) == {}
    assert not gone.has_retention
    both = changed(topic(), Alteration("cleanup.policy", AlterOp.APPEND, "compact"))
    assert configs_of(both) == {"cleanup.policy": "delete,compact"}
    again = changed(both, Alteration("cleanup.policy", AlterOp.APPEND, "compact"))
    assert again == both
    compact = changed(both, Alteration("cleanup.policy", AlterOp.SUBTRACT, "delete"))
    assert configs_of(compact) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("step", "rule"),
    [
        (Alteration("retention.ms", AlterOp.APPEND, "1"), "is not a list"),
        (Alteration("retention.ms", AlterOp.SET, None), "has no value"),
        (Alteration("retention.ms", 4, "1"), "operation 4"),
        (Alteration("retention.hours", AlterOp.SET, "1"), "there is no topic config"),
        (Alteration("min.insync.replicas", AlterOp.SET, "2"), "has 1 replicas"),
    ],
)
def test_a_bad_step_is_refused(step: Alteration, rule: str) -> None:
    with pytest.raises(InvalidConfig, match=rule):
        altered_configs(topic(), [step])
    twice = Alteration("retention.ms", AlterOp.SET, "1")
    with pytest.raises(InvalidConfig, match="changed twice"):
        altered_configs(topic(), [twice, twice])


def test_texts_that_other_tools_have_set_are_left_alone_and_any_name_can_be_deleted() -> None:
    """Another version may know the name."""
    assert changed(topic(), delete("retention.hours")) == topic()
    odd = replace(topic(), configs=(("min.compaction.lag.ms", "soon"), ("team", "payments")))
    after = changed(odd, Alteration("retention.ms", AlterOp.SET, "1000"))
    assert after.configs == odd.configs


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "retention.ms": st.integers(1, 2**43 * 1_000).map(str),  # beyond it a float of seconds has no milliseconds
            "retention.bytes": st.integers(1, 2**62 // 4096).map(str),
            "segment.ms": st.integers(1, 2**62).map(str),
            "cleanup.policy": st.sampled_from(["delete", "compact", "compact,delete"]),
            "seaweedmq.durability": st.just("replicated"),
            "preallocate": st.sampled_from(["true", "false"]),
        },
    ),
    st.integers(1, 8),
)
@example({"retention.ms": "4503599627370471"}, 1)
def test_what_is_set_is_what_is_told(given: dict[str, str], partitions: int) -> None:
    parsed = parse_configs(given, replicas=1)
    spec = spec_of(NAME, partitions=partitions, replicas=1, configs=parsed)
    made = new_topic(spec, uid=7, now_us=0, placement=[("b-1",)] * partitions).topic
    assert configs_of(made) == configs_of(spec) == dict(sorted(given.items()))
    assert altered(made, change_of(made, configs_of(made))) == made


class ComparedName(str):
    """A name that counts how often it is compared."""

    compared = 0
    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        ComparedName.compared += 1
        return str.__eq__(self, other)


def test_the_cost_of_many_steps_grows_as_their_number() -> None:
    steps = [delete(ComparedName(f"unknown-{number}")) for number in range(1_000)]
    altered_configs(topic(), steps)
    assert ComparedName.compared < 20 * len(steps)
