"""The configs of a topic: every name of Apache Kafka 4.1, and SeaweedMQ's own.

A default is the effective value here, even where Kafka's differs, so that readers see the truth. ``topic_configs`` has
the defaults that come from the broker's settings.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from seaweedmq.core.kafka.config_values import LONG_MAX, Config, ConfigType
from seaweedmq.model.topic import Durability, Scaling
from seaweedmq.model.topic_settings import AUTO_COMPACT

THROTTLED_REPLICAS = r"\*|([0-9]+:[0-9]+(,[0-9]+:[0-9]+)*)?"
BOOLEAN, STRING, LIST = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.LIST
INT, LONG, DOUBLE = ConfigType.INT, ConfigType.LONG, ConfigType.DOUBLE

RETENTION_MS = "retention.ms"
RETENTION_BYTES = "retention.bytes"
CLEANUP_POLICY = "cleanup.policy"
MAX_MESSAGE_BYTES = "max.message.bytes"
MIN_INSYNC_REPLICAS = "min.insync.replicas"
SEGMENT_MS = "segment.ms"
SEGMENT_BYTES = "segment.bytes"
LOCAL_RETENTION_MS = "local.retention.ms"
MIN_COMPACTION_LAG_MS = "min.compaction.lag.ms"
MAX_COMPACTION_LAG_MS = "max.compaction.lag.ms"
DURABILITY = "seaweedmq.durability"
SCALING = "seaweedmq.scaling"

_ineffective = partial(Config, acts=False)
"""Maker of a config that is kept and shown, without effect here."""
_CONFIGS = {
    Config(CLEANUP_POLICY, LIST, "delete", "log.*", only=("delete", "compact")): (
        "delete: retention removes old records. Without it every record is kept. With compact all need keys."
    ),
    _ineffective("compression.gzip.level", INT, "-1", "*", low=1, high=9, extra=-1): (
        "Level at which brokers compress with gzip; batches are kept as producers send them."
    ),
    _ineffective("compression.lz4.level", INT, "9", "*", low=1, high=17): (
        "Level at which brokers compress with lz4; batches are kept as producers send them."
    ),
    _ineffective(
        "compression.type", STRING, "producer", "*", only=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    ): "Codec that brokers compress with; batches are kept as producers send them.",
    _ineffective("compression.zstd.level", INT, "3", "*", low=-131_072, high=22): (
        "Level at which brokers compress with zstd; batches are kept as producers send them."
    ),
    _ineffective("delete.retention.ms", LONG, "86400000", "log.cleaner.*", low=0): (
        "Time that compaction keeps tombstones."
    ),
    _ineffective("file.delete.delay.ms", LONG, "60000", "log.segment.delete.delay.ms", low=0): (
        "Time that a file stays after its removal."
    ),
    _ineffective("flush.messages", LONG, str(LONG_MAX), "log.flush.interval.messages", low=1): (
        "Records between flushes; seaweedmq.durability decides when records are flushed."
    ),
    _ineffective("flush.ms", LONG, str(LONG_MAX), "log.flush.interval.ms", low=0): (
        "Time between flushes; seaweedmq.durability decides when records are flushed."
    ),
    _ineffective("follower.replication.throttled.replicas", LIST, "", "*", form=THROTTLED_REPLICAS): (
        "Replicas whose replication is throttled on followers."
    ),
    _ineffective("index.interval.bytes", INT, "4096", "log.*", low=0): "Bytes between entries of the offset index.",
    _ineffective("leader.replication.throttled.replicas", LIST, "", "*", form=THROTTLED_REPLICAS): (
        "Replicas whose replication is throttled on leaders."
    ),
    _ineffective("local.retention.bytes", LONG, "-2", "log.*", low=-2): (
        "Size per partition of the log files that stay beside the tables."
    ),
    Config(LOCAL_RETENTION_MS, LONG, "600000", "log.*", low=-2): (
        "Time that log files, with batches as sent, stay beside tables; -2: the default, -1: as long as tables."
    ),
    _ineffective(MAX_COMPACTION_LAG_MS, LONG, str(LONG_MAX), "log.cleaner.*", low=1): (
        "Longest time that a record stays uncompacted."
    ),
    Config(MAX_MESSAGE_BYTES, INT, "1048588", "message.max.bytes", low=0): (
        "Largest accepted batch, in bytes as sent, up to the brokers' frame_bytes_max."
    ),
    Config("message.timestamp.after.max.ms", LONG, "3600000", "log.*", low=0): (
        "Limit on a record's time after the broker's clock."
    ),
    Config("message.timestamp.before.max.ms", LONG, str(LONG_MAX), "log.*", low=0): (
        "Limit on a record's time before the broker's clock."
    ),
    Config("message.timestamp.type", STRING, "CreateTime", "log.*", only=("CreateTime", "LogAppendTime")): (
        "Source of a record's time: its producer or the broker."
    ),
    _ineffective("min.cleanable.dirty.ratio", DOUBLE, "0.5", "log.cleaner.min.cleanable.ratio", low=0, high=1): (
        "Share of records not compacted yet at which compaction begins."
    ),
    _ineffective(MIN_COMPACTION_LAG_MS, LONG, "0", "log.cleaner.*", low=0): (
        "Shortest time that a record stays uncompacted."
    ),
    Config(MIN_INSYNC_REPLICAS, INT, "1", "*", low=1): (
        "A partition with fewer replicas rejects batches with acks=all. At most the topic's replicas."
    ),
    _ineffective("preallocate", BOOLEAN, "false", "log.*"): "Whether files get their space before they are written.",
    _ineffective("remote.log.copy.disable", BOOLEAN, "false", "*"): "Whether copying to remote storage has stopped.",
    _ineffective("remote.log.delete.on.disable", BOOLEAN, "false", "*"): (
        "Whether disabling remote storage deletes its content."
    ),
    _ineffective("remote.storage.enable", BOOLEAN, "false", "*", only=("false",)): (
        "Kafka's tiered storage, which is not supported; all records are in the shared storage anyway."
    ),
    Config(RETENTION_BYTES, LONG, "-1", "log.*", low=-1): (
        "Size of a partition above which the oldest records go; -1: no limit. Counted over all partitions."
    ),
    Config(RETENTION_MS, LONG, "-1", "log.*", low=-1): "Time that records are kept; -1: no limit. 0 counts as 1.",
    Config(SEGMENT_BYTES, INT, "1073741824", "log.*", low=1 << 20): (
        "Size at which a log file is sealed and becomes a table, up to the brokers' log_roll_bytes."
    ),
    _ineffective("segment.index.bytes", INT, "10485760", "log.index.size.max.bytes", low=4): (
        "Size of the offset index of a file."
    ),
    _ineffective("segment.jitter.ms", LONG, "0", "log.roll.jitter.ms", low=0): (
        "Spread of the sealing times of log files."
    ),
    Config(SEGMENT_MS, LONG, "600000", "log.roll.ms", low=1): (
        "Age at which a log file that is not empty is sealed and becomes a table."
    ),
    _ineffective("unclean.leader.election.enable", BOOLEAN, "false", "*"): (
        "Whether a replica that lacks records may lead; here it never does."
    ),
    Config(AUTO_COMPACT, BOOLEAN, "false", "*"): (
        "true: brokers merge small Parquet files into larger ones. Independent of cleanup.policy."
    ),
    Config(DURABILITY, STRING, "", "*", only=tuple(Durability)): (
        "replicated: a record is acknowledged once every replica holds it. stored: once it is flushed."
    ),
    Config(SCALING, STRING, Scaling.FIXED, "*", only=(Scaling.FIXED,)): (
        "fixed: a partition is a segment that is never split or merged."
    ),
}

TOPIC_CONFIGS: Mapping[str, Config] = {
    config.name: replace(config, about=about)
    for config, about in sorted(_CONFIGS.items(), key=lambda entry: entry[0].name)
}
