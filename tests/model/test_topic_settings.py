"""Settings of a topic by name: those that are stored, those with an effect, and rejected ones."""

import math

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic_settings import (
    CONFIGS_LENGTH_MAX,
    CONFIGS_MAX,
    ROLL_BYTES_MIN,
    TimestampType,
    TopicSettings,
    check_configs,
    configs_of,
    settings_of,
)


def test_any_name_is_kept_and_what_is_known_acts() -> None:
    configs = configs_of(
        {
            "unclean.leader.election.enable": "true",
            "segment.ms": "90000",
            "segment.bytes": "1048576",
            "local.retention.ms": "3600000",
            "max.message.bytes": "2000",
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "compact, delete",
            "min.insync.replicas": "2",
        }
    )
    check_configs(configs, 2)
    assert [name for name, _ in configs] == sorted(name for name, _ in configs)
    assert settings_of(configs) == TopicSettings(
        roll_age_s=90.0,
        roll_bytes=1_048_576,
        log_kept_s=3_600.0,
        message_bytes_max=2_000,
        timestamp_type=TimestampType.LOG_APPEND_TIME,
        compacts=True,
        expires=True,
        insync_replicas_min=2,
    )


def test_what_is_not_set_is_as_the_broker_says() -> None:
    assert settings_of(()) == TopicSettings()
    assert settings_of((("local.retention.ms", "-2"),)).log_kept_s is None
    assert settings_of((("local.retention.ms", "-1"),)).log_kept_s == math.inf
    assert settings_of((("segment.bytes", "14"),)).roll_bytes == ROLL_BYTES_MIN


@pytest.mark.parametrize(
    ("policy", "compacts", "expires"),
    [("compact", True, False), ("delete", False, True), ("delete,compact", True, True), ("", False, False)],
)
def test_what_becomes_of_old_records(policy: str, compacts: bool, expires: bool) -> None:
    settings = settings_of((("cleanup.policy", policy),))
    assert (settings.compacts, settings.expires) == (compacts, expires)


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("", "x", "setting name .* is not allowed"),
        ("a=b", "x", "setting name .* is not allowed"),
        ("ä", "x", "setting name .* is not allowed"),
        ("x" * 250, "x", "use 1 to 249"),
        ("x", "y" * 4_097, "has 4097 characters: use up to 4096"),
        ("x", "a\nb", "printable characters"),
        ("retention.ms", "1", r"retention\.ms is not set by name: set retention_s \(--retention\) instead"),
        ("retention.bytes", "1", r"set retention_bytes \(--retention-bytes\)"),
        ("seaweedmq.durability", "stored", r"set durability \(--durability\)"),
        ("seaweedmq.scaling", "fixed", r"set scaling \(--scaling\)"),
        ("segment.ms", "0", r"segment\.ms is '0': give a whole number from 1 on"),
        ("segment.ms", "1.5", "give a whole number"),
        ("segment.ms", "\uff19", "give a whole number"),
        ("segment.bytes", str(1 << 63), "give a whole number"),
        ("local.retention.ms", "-3", "give a whole number from -2 on"),
        ("max.message.bytes", "", "give a whole number from 0 on"),
        ("message.timestamp.type", "createtime", "give CreateTime or LogAppendTime"),
        ("cleanup.policy", "delete;compact", "give delete, compact, both or nothing"),
        ("seaweedmq.auto.compact", "yes", "seaweedmq.auto.compact is 'yes': give true or false"),
        ("min.insync.replicas", "3", "min.insync.replicas of 3 exceeds 2 replicas, so nothing could be produced"),
    ],
)
def test_what_can_not_be_kept_or_would_not_act_is_refused(name: str, value: str, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=sentence):
        check_configs(((name, value),), 2)


def test_there_are_bounds_on_all_of_them_together() -> None:
    with pytest.raises(InvalidArgument, match=f"101 settings by name: a topic has at most {CONFIGS_MAX}"):
        check_configs(configs_of({f"x{number}": "" for number in range(101)}), 1)
    with pytest.raises(InvalidArgument, match=f"a topic has at most {CONFIGS_LENGTH_MAX}"):
        check_configs(configs_of({f"x{number}": "y" * 4_000 for number in range(5)}), 1)
    with pytest.raises(InvalidArgument, match="out of order or not unique"):
        check_configs((("a", "1"), ("a", "2")), 1)


def test_a_value_of_another_version_that_can_not_be_read_does_not_act() -> None:
    settings = settings_of((("cleanup.policy", "shred"), ("segment.ms", "5000")))
    assert settings == TopicSettings(roll_age_s=5.0)


def test_auto_compact_acts_once_it_is_true() -> None:
    assert settings_of((("seaweedmq.auto.compact", "True"),)).auto_compact
    assert not settings_of((("seaweedmq.auto.compact", "false"),)).auto_compact
