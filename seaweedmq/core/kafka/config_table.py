"""The configs of a topic: every name of Apache Kafka 4.1, and SeaweedMQ's own.

A default is the effective value here, even where Kafka's differs, so that readers see the truth. ``topic_configs`` has
the defaults that come from the broker's settings.
"""

from collections.abc import Mapping

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

_CONFIGS = (
    Config(
        name=CLEANUP_POLICY,
        type=LIST,
        default="delete",
        only=("delete", "compact"),
        acts=True,
        synonym="log.cleanup.policy",
        about="delete: retention removes old records. Without it every record is kept. With compact all need keys.",
    ),
    Config(
        name="compression.gzip.level",
        type=INT,
        default="-1",
        low=1,
        high=9,
        besides=-1,
        synonym="compression.gzip.level",
        about="Level at which brokers compress with gzip; batches are kept as producers send them.",
    ),
    Config(
        name="compression.lz4.level",
        type=INT,
        default="9",
        low=1,
        high=17,
        synonym="compression.lz4.level",
        about="Level at which brokers compress with lz4; batches are kept as producers send them.",
    ),
    Config(
        name="compression.type",
        type=STRING,
        default="producer",
        only=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonym="compression.type",
        about="Codec that brokers compress with; batches are kept as producers send them.",
    ),
    Config(
        name="compression.zstd.level",
        type=INT,
        default="3",
        low=-131_072,
        high=22,
        synonym="compression.zstd.level",
        about="Level at which brokers compress with zstd; batches are kept as producers send them.",
    ),
    Config(
        name="delete.retention.ms",
        type=LONG,
        default="86400000",
        low=0,
        synonym="log.cleaner.delete.retention.ms",
        about="Time that compaction keeps tombstones.",
    ),
    Config(
        name="file.delete.delay.ms",
        type=LONG,
        default="60000",
        low=0,
        synonym="log.segment.delete.delay.ms",
        about="Time that a file stays after its removal.",
    ),
    Config(
        name="flush.messages",
        type=LONG,
        default=str(LONG_MAX),
        low=1,
        synonym="log.flush.interval.messages",
        about="Records between flushes; seaweedmq.durability decides when records are flushed.",
    ),
    Config(
        name="flush.ms",
        type=LONG,
        default=str(LONG_MAX),
        low=0,
        synonym="log.flush.interval.ms",
        about="Time between flushes; seaweedmq.durability decides when records are flushed.",
    ),
    Config(
        name="follower.replication.throttled.replicas",
        type=LIST,
        default="",
        form=THROTTLED_REPLICAS,
        about="Replicas whose replication is throttled on followers.",
    ),
    Config(
        name="index.interval.bytes",
        type=INT,
        default="4096",
        low=0,
        synonym="log.index.interval.bytes",
        about="Bytes between entries of the offset index.",
    ),
    Config(
        name="leader.replication.throttled.replicas",
        type=LIST,
        default="",
        form=THROTTLED_REPLICAS,
        about="Replicas whose replication is throttled on leaders.",
    ),
    Config(
        name="local.retention.bytes",
        type=LONG,
        default="-2",
        low=-2,
        synonym="log.local.retention.bytes",
        about="Size per partition of the log files that stay beside the tables.",
    ),
    Config(
        name=LOCAL_RETENTION_MS,
        type=LONG,
        default="600000",
        low=-2,
        acts=True,
        synonym="log.local.retention.ms",
        about="Time that log files, with batches as sent, stay beside tables; -2: the default, -1: as long as tables.",
    ),
    Config(
        name=MAX_COMPACTION_LAG_MS,
        type=LONG,
        default=str(LONG_MAX),
        low=1,
        synonym="log.cleaner.max.compaction.lag.ms",
        about="Longest time that a record stays uncompacted.",
    ),
    Config(
        name=MAX_MESSAGE_BYTES,
        type=INT,
        default="1048588",
        low=0,
        acts=True,
        synonym="message.max.bytes",
        about="Largest accepted batch, in bytes as sent, up to the brokers' frame_bytes_max.",
    ),
    Config(
        name="message.timestamp.after.max.ms",
        type=LONG,
        default="3600000",
        low=0,
        acts=True,
        synonym="log.message.timestamp.after.max.ms",
        about="Limit on a record's time after the broker's clock.",
    ),
    Config(
        name="message.timestamp.before.max.ms",
        type=LONG,
        default=str(LONG_MAX),
        low=0,
        acts=True,
        synonym="log.message.timestamp.before.max.ms",
        about="Limit on a record's time before the broker's clock.",
    ),
    Config(
        name="message.timestamp.type",
        type=STRING,
        default="CreateTime",
        only=("CreateTime", "LogAppendTime"),
        acts=True,
        synonym="log.message.timestamp.type",
        about="Source of a record's time: its producer or the broker.",
    ),
    Config(
        name="min.cleanable.dirty.ratio",
        type=DOUBLE,
        default="0.5",
        low=0,
        high=1,
        synonym="log.cleaner.min.cleanable.ratio",
        about="Share of records not compacted yet at which compaction begins.",
    ),
    Config(
        name=MIN_COMPACTION_LAG_MS,
        type=LONG,
        default="0",
        low=0,
        synonym="log.cleaner.min.compaction.lag.ms",
        about="Shortest time that a record stays uncompacted.",
    ),
    Config(
        name=MIN_INSYNC_REPLICAS,
        type=INT,
        default="1",
        low=1,
        acts=True,
        synonym="min.insync.replicas",
        about="A partition with fewer replicas rejects batches with acks=all. At most the topic's replicas.",
    ),
    Config(
        name="preallocate",
        type=BOOLEAN,
        default="false",
        synonym="log.preallocate",
        about="Whether files get their space before they are written.",
    ),
    Config(
        name="remote.log.copy.disable",
        type=BOOLEAN,
        default="false",
        about="Whether copying to remote storage has stopped.",
    ),
    Config(
        name="remote.log.delete.on.disable",
        type=BOOLEAN,
        default="false",
        about="Whether disabling remote storage deletes its content.",
    ),
    Config(
        name="remote.storage.enable",
        type=BOOLEAN,
        default="false",
        only=("false",),
        about="Kafka's tiered storage, which is not supported; all records are in the shared storage anyway.",
    ),
    Config(
        name=RETENTION_BYTES,
        type=LONG,
        default="-1",
        low=-1,
        acts=True,
        synonym="log.retention.bytes",
        about="Size of a partition above which the oldest records go; -1: no limit. Counted over all partitions.",
    ),
    Config(
        name=RETENTION_MS,
        type=LONG,
        default="-1",
        low=-1,
        acts=True,
        synonym="log.retention.ms",
        about="Time that records are kept; -1: no limit. 0 counts as 1.",
    ),
    Config(
        name=SEGMENT_BYTES,
        type=INT,
        default="1073741824",
        low=1 << 20,
        acts=True,
        synonym="log.segment.bytes",
        about="Size at which a log file is sealed and becomes a table, up to the brokers' log_roll_bytes.",
    ),
    Config(
        name="segment.index.bytes",
        type=INT,
        default="10485760",
        low=4,
        synonym="log.index.size.max.bytes",
        about="Size of the offset index of a file.",
    ),
    Config(
        name="segment.jitter.ms",
        type=LONG,
        default="0",
        low=0,
        synonym="log.roll.jitter.ms",
        about="Spread of the sealing times of log files.",
    ),
    Config(
        name=SEGMENT_MS,
        type=LONG,
        default="600000",
        low=1,
        acts=True,
        synonym="log.roll.ms",
        about="Age at which a log file that is not empty is sealed and becomes a table.",
    ),
    Config(
        name="unclean.leader.election.enable",
        type=BOOLEAN,
        default="false",
        synonym="unclean.leader.election.enable",
        about="Whether a replica that lacks records may lead; here it never does.",
    ),
    Config(
        name=AUTO_COMPACT,
        type=BOOLEAN,
        default="false",
        acts=True,
        about="true: brokers merge small Parquet files into larger ones. Independent of cleanup.policy.",
    ),
    Config(
        name=DURABILITY,
        type=STRING,
        default="",
        only=tuple(Durability),
        acts=True,
        about="replicated: a record is acknowledged once every replica holds it. stored: once it is flushed.",
    ),
    Config(
        name=SCALING,
        type=STRING,
        default=Scaling.FIXED,
        only=(Scaling.FIXED,),
        acts=True,
        about="fixed: a partition is a segment that is never split or merged.",
    ),
)

TOPIC_CONFIGS: Mapping[str, Config] = {config.name: config for config in sorted(_CONFIGS, key=lambda c: c.name)}
