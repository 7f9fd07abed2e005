"""Intended differences between replies in scenes, each with its reason. A difference that disappears fails the test.

Most are in requests that no client sends: their errors have other codes.
"""

from tests.kafka.differential.comparison import Rule

DELIBERATE = (
    # ApiVersions
    Rule("versions", "version ?: api_keys.*", "other tests cover the advertised versions; APIs of KRaft, "
         "transactions, share groups and delegation tokens are not advertised, versions from before Kafka 4 are, for "
         "old clients"),
    Rule("versions", "version ?: *_features*", "features are those of KRaft's metadata, which does not exist here"),
    # Topics
    Rule("create", "min.insync.replicas=2: topics.*.error_code", "with one replica no batch with acks=all could "
         "ever be appended: Kafka accepts the config and rejects every batch"),
    Rule("create", "a config twice: *", "Kafka silently takes the last: SeaweedMQ rejects a contradictory request"),
    Rule("metadata", "neither: *", "Kafka fails on it (-1): INVALID_REQUEST"),
    # Configs
    Rule("*", "*: *.configs.retention.ms.*", "topics retain records without a limit unless one is set, "
         "and show the effective value; Kafka's default is 7 days, by a broker config in hours"),
    Rule("*", "*: *.configs.segment.*", "log files roll at 128 MiB and 10 minutes, and the effective values are shown"),
    Rule("*", "*: *.configs.local.retention.ms.*", "log files are deleted 10 minutes after their conversion to tables"),
    Rule("*", "*: *.configs.min.insync.replicas.config_source", "Kafka 4.1 sets it for the cluster, by a feature of "
         "KRaft: SeaweedMQ has the default"),
    Rule("*", "*: *.configs.seaweedmq.*", "configs of SeaweedMQ"),
    Rule("describe-configs", "some of the broker: *.log.retention.ms.value", "no limit, see retention.ms; Kafka sets "
         "it in hours, so this name has no value"),
    Rule("describe-configs", "some of the broker: *.read_only", "broker configs are set in files"),
    Rule("describe-configs", "some of the broker: *.num.partitions.config_source", "Kafka's was set for the recording"),
    Rule("alter-configs", "an unknown operation: *.error_code", "Kafka fails on it (-1)"),
    Rule("alter-configs", "more replicas in sync than there are: *.error_code", "see create: min.insync.replicas=2"),
    # Produce
    *(
        Rule(scene, "*: responses.*.partition_responses.*.log_start_offset", "with some rejected batches Kafka "
             "returns it, but no client reads it: -1")
        for scene in ("refused", "sequences", "formats", "behind")
    ),
    Rule("formats", "lz4 of *: *.error_code", "Kafka fails on it (-1): INVALID_RECORD"),
    Rule("refused", "a length *: *.error_code", "INVALID_RECORD, as for a length that is too large: the client did not "
         "send exactly one batch, and a resend would not help"),
    Rule("refused", "bytes behind it: *", "Kafka drops bytes behind a batch: SeaweedMQ rejects them"),
    Rule("refused", "codec ?: *.error_code", "Kafka fails on it (-1): UNSUPPORTED_COMPRESSION_TYPE"),
    Rule("refused", "said to be packed, and is not: *.error_code", "Kafka fails on it (-1): INVALID_RECORD"),
    Rule("refused", "a control batch of a transaction: *.error_code", "there are no transactions yet: rejected as any "
         "control batch"),
    Rule("refused", "of no transaction: *.error_code", "Kafka first checks the permission for the transactional id, "
         "which the request lacks: INVALID_TXN_STATE, as with the permission"),
    Rule("refused", "with the time of arrival: *", "Kafka accepts the client's time in a batch marked with the "
         "broker's time: SeaweedMQ rejects it with INVALID_TIMESTAMP"),
    Rule("refused", "a producer with no epoch: *", "Kafka stores half of an identity, which it cannot use: SeaweedMQ "
         "rejects it"),
    Rule("refused", "producer -2: *", "Kafka stores an invalid id: SeaweedMQ rejects it"),
    Rule("refused", "one partition twice: *", "Kafka silently drops one of the two batches: SeaweedMQ appends both, "
         "in order, and replies to both"),
    Rule("refused", "in version ?: *", "Kafka 4 advertises these versions for librdkafka only and closes the "
         "connection: SeaweedMQ replies UNSUPPORTED_VERSION"),
    Rule("refused", "what is in 20: *", "see: bytes behind it"),
    Rule("refused", "what is in 27: *", "see: with the time of arrival"),
    Rule("refused", "what is in 30: *.max_timestamp", "batches are stored as sent, also with times before 1970"),
    Rule("refused", "what is in 35: *", "see: a producer with no epoch"),
    Rule("refused", "what is in 37: *", "see: producer -2"),
    Rule("refused", "what is in 47: *", "see: one partition twice"),
    Rule("sequences", "*: *.log_append_time_ms", "Kafka replies to a repeat with the record's time, although it is not "
         "the broker's: -1, as in the first reply"),
    Rule("sequences", "one long ago: *", "Kafka remembers the last 5 batches of a producer, SeaweedMQ the last 16, "
         "so it recognizes a repeat of an older one"),
    Rule("sequences", "who produced: *.last_timestamp", "it is not stored: -1"),
    # Fetch
    Rule("*", "*: responses.*.aborted_transactions", "null where Kafka has an empty list or null: both mean none"),
    Rule("fetch", "of no isolation level: *", "Kafka fails on it (-1): SeaweedMQ reads as with read_uncommitted"),
    Rule("fetch", "as a replica: *", "replicas of SeaweedMQ do not fetch: the client is treated as a consumer"),
    Rule("limits", "-1 bytes *", "Kafka fails on it (-1): as 0"),
    Rule("limits", "a batch and a half*: *.records", "Kafka sends the half, which clients discard: SeaweedMQ does not "
         "send it"),
    # Offsets
    Rule("deletions", "the highest time of nothing: *", "Kafka returns a deleted record: SeaweedMQ returns none"),
    # Groups
    Rule("commits", "delete of no group: topics*", "the error is that of the whole reply, and also of each partition"),
    Rule("commits", "the group without offsets: *.group_state", "Kafka deletes a group without members and offsets "
         "after some minutes: SeaweedMQ deletes it at once"),
)  # fmt: skip
