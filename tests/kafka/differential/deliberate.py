"""The differences that are meant, each with its reason. One that is not found any more fails the test.

Most are of requests that no client sends: what is wrong with them is answered differently.
"""

from tests.kafka.differential.comparison import Rule

DELIBERATE = (
    # ApiVersions
    Rule("versions", "version ?: api_keys.*", "what is advertised is tested by itself; APIs of KRaft, transactions, "
         "share groups and delegation tokens are not, and versions from before Kafka 4 are, for old clients"),
    Rule("versions", "version ?: *_features*", "features are those of KRaft's metadata, of which there is none"),
    # Topics
    Rule("create", "min.insync.replicas=2: topics.*.error_code", "with one replica nothing could ever be produced with "
         "acks=all: Kafka takes it and refuses every batch"),
    Rule("create", "a config twice: *", "Kafka silently takes the last: a request that contradicts itself is refused"),
    Rule("metadata", "neither: *", "Kafka fails on it (-1): it is refused as INVALID_REQUEST"),
    # Configs
    Rule("*", "*: *.configs.retention.ms.*", "topics keep their records without a limit unless one is set, "
         "and what holds then is shown; Kafka's default is 7 days, by a broker config in hours"),
    Rule("*", "*: *.configs.segment.*", "log files roll at 128 MiB and 10 minutes, and true values are shown"),
    Rule("*", "*: *.configs.local.retention.ms.*", "log files stay 10 minutes once they are in tables"),
    Rule("*", "*: *.configs.min.insync.replicas.config_source", "Kafka 4.1 sets it for the cluster, by a feature of "
         "KRaft: here it is the default"),
    Rule("*", "*: *.configs.seaweedmq.*", "SeaweedMQ's own"),
    Rule("describe-configs", "some of the broker: *.log.retention.ms.value", "no limit, see retention.ms; Kafka's is "
         "set in hours, so that this name has no value"),
    Rule("describe-configs", "some of the broker: *.read_only", "brokers' settings are in their files"),
    Rule("describe-configs", "some of the broker: *.num.partitions.config_source", "set for the recording"),
    Rule("alter-configs", "an unknown operation: *.error_code", "Kafka fails on it (-1)"),
    Rule("alter-configs", "more replicas in sync than there are: *.error_code", "see create: min.insync.replicas=2"),
    # Produce
    *(
        Rule(scene, "*: responses.*.partition_responses.*.log_start_offset", "with some rejected batches Kafka says "
             "it, and no client reads it: -1")
        for scene in ("refused", "sequences", "formats", "behind")
    ),
    Rule("formats", "lz4 of *: *.error_code", "Kafka fails on it (-1): INVALID_RECORD"),
    Rule("refused", "a length *: *.error_code", "INVALID_RECORD, as for a length that is too large: the client did not "
         "send one batch, and to send it again would not help"),
    Rule("refused", "bytes behind it: *", "Kafka drops bytes behind a batch: they are refused"),
    Rule("refused", "codec ?: *.error_code", "Kafka fails on it (-1): UNSUPPORTED_COMPRESSION_TYPE"),
    Rule("refused", "said to be packed, and is not: *.error_code", "Kafka fails on it (-1): INVALID_RECORD"),
    Rule("refused", "a control batch of a transaction: *.error_code", "there are no transactions yet: refused as any "
         "control batch"),
    Rule("refused", "of no transaction: *.error_code", "Kafka first asks whether the client may have the transactional "
         "id that it did not name: INVALID_TXN_STATE, as for one that it may have"),
    Rule("refused", "with the time of arrival: *", "Kafka takes the time of its creation for one that is said to be "
         "the broker's: such a batch is refused with INVALID_TIMESTAMP"),
    Rule("refused", "a producer with no epoch: *", "Kafka keeps half of an identity, which it cannot use: refused"),
    Rule("refused", "producer -2: *", "Kafka keeps an id that is none: refused"),
    Rule("refused", "one partition twice: *", "Kafka drops one of the two batches and says nothing of it: both are "
         "taken, in order, and both are answered"),
    Rule("refused", "in version ?: *", "Kafka 4 advertises these versions for librdkafka's sake and hangs up: the "
         "answer is UNSUPPORTED_VERSION"),
    Rule("refused", "what is in 20: *", "see: bytes behind it"),
    Rule("refused", "what is in 27: *", "see: with the time of arrival"),
    Rule("refused", "what is in 30: *.max_timestamp", "batches are kept as they were sent, also of times before 1970"),
    Rule("refused", "what is in 35: *", "see: a producer with no epoch"),
    Rule("refused", "what is in 37: *", "see: producer -2"),
    Rule("refused", "what is in 47: *", "see: one partition twice"),
    Rule("sequences", "*: *.log_append_time_ms", "Kafka answers a repeat with the time of the record, though it is not "
         "the broker's: -1, as the first time"),
    Rule("sequences", "one long ago: *", "Kafka remembers the last 5 batches of a producer, SeaweedMQ the last 16: a "
         "repeat of an older one is known"),
    Rule("sequences", "who produced: *.last_timestamp", "it is not kept: -1"),
    # Fetch
    Rule("*", "*: responses.*.aborted_transactions", "null, where Kafka has an empty list or null: none, both times"),
    Rule("fetch", "of no isolation level: *", "Kafka fails on it (-1): read as not committed"),
    Rule("fetch", "as a replica: *", "replicas of SeaweedMQ do not fetch: who says that it is one is a consumer"),
    Rule("limits", "-1 bytes *", "Kafka fails on it (-1): as 0"),
    Rule("limits", "a batch and a half*: *.records", "Kafka sends the half, which clients throw away: it is not sent"),
    # Offsets
    Rule("deletions", "the highest time of nothing: *", "Kafka names a deleted record: there is none"),
    # Groups
    Rule("commits", "delete of no group: topics*", "the error is the whole reply's, and also of each partition"),
    Rule("commits", "the group without offsets: *.group_state", "Kafka forgets a group without members and offsets "
         "some minutes later: it is forgotten at once"),
)  # fmt: skip
