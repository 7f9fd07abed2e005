"""Intended differences between replies to single requests, each with its reason."""

from tests.kafka.differential.comparison import Rule

MEANT: tuple[Rule, ...] = (
    # All
    Rule("*", "*: *.aborted_transactions", "null where Apache Kafka has an empty list: both mean none"),
    Rule("*", "timeout_ms=*: *error_code", "Apache Kafka fails with REQUEST_TIMED_OUT at a timeout of 0 or below: "
         "SeaweedMQ takes the time that one request needs"),
    # Produce
    Rule("Produce", "good: ", "Apache Kafka 4 advertises versions 0 to 2 for librdkafka only and closes the "
         "connection: SeaweedMQ replies UNSUPPORTED_VERSION"),
    Rule("Produce", "*=twice: *", "Apache Kafka silently drops one of two batches for one partition: SeaweedMQ "
         "appends both, in order, and replies to both"),
    Rule("Produce", "good: *.base_offset", "one more record was appended, see above"),
    Rule("Produce", "*.records=None: ", "Apache Kafka never replies: INVALID_RECORD"),
    Rule("Produce", "*.records=100 zeros: *.error_code", "INVALID_RECORD, as for any wrong length: CORRUPT_MESSAGE "
         "would mean that a resend helps"),
    # Fetch
    Rule("Fetch", "replica_id=*: *", "replicas of SeaweedMQ do not fetch: a client that claims to be a replica is "
         "treated as a consumer"),
    Rule("Fetch", "*max_bytes=-*: *", "Apache Kafka fails (-1): as 0, which returns one batch"),
    Rule("Fetch", "isolation_level=*: *", "Apache Kafka fails (-1) on an unknown level: SeaweedMQ reads as with "
         "read_uncommitted"),
    Rule("Fetch", "session_id=*: *", "Apache Kafka fails (-1) on some ids: closing an unknown session has no effect"),
    Rule("Fetch", "*.last_fetched_epoch=*: *", "only replicas send it, so it is not compared"),
    # Offsets
    Rule("ListOffsets", "topics=twice: topics", "SeaweedMQ replies for each topic of the request, Apache Kafka once: "
         "the error is the same"),
    Rule("ListOffsets", "isolation_level=*: *", "as in Fetch"),
    Rule("OffsetForLeaderEpoch", "*.leader_epoch=-*: *", "Apache Kafka replies to a negative epoch with that epoch "
         "and the start of the log: SeaweedMQ replies none, -1"),
    # Metadata
    Rule("Metadata", "topics.0.name='no-such': *", "SeaweedMQ creates the topic before it replies, with its "
         "partitions: Apache Kafka first replies UNKNOWN_TOPIC_OR_PARTITION"),
    Rule("Metadata", "topics.0.name=None: *", "Apache Kafka fails (-1) on a topic with neither name nor id: "
         "INVALID_REQUEST"),
    Rule("DescribeTopicPartitions", "topics.0.name='': *", "Apache Kafka fails (-1): INVALID_TOPIC_EXCEPTION"),
    Rule("DescribeTopicPartitions", "cursor.partition_index=*: next_cursor", "a sum overflows in Apache Kafka"),
    # Groups
    Rule("FindCoordinator", "key_type=1: *", "there are no transactions: producers report this code at once"),
    Rule("InitProducerId", "transactional_id=*: *", "there are no transactions: producers report this code at once"),
    Rule("JoinGroup", "protocols=twice*: ", "Apache Kafka never replies: the last of a name counts"),
    Rule("JoinGroup", "protocols.0.metadata=*: ", "Apache Kafka never replies if the subscription is unreadable: "
         "in SeaweedMQ, only members read it"),
    Rule("JoinGroup", "protocol_type=300 characters*: *", "249 characters at most, since members are stored in memory"),
    Rule("JoinGroup", "protocols.0.name=300 characters*: *", "as for protocol_type"),
    Rule("JoinGroup", "group_instance_id=*: *", "1 to 249 characters, as Java's client checks"),
    Rule("ConsumerGroupHeartbeat", "*: *", "the new group protocol (KIP-848) is not supported yet: the code is "
         "UNSUPPORTED_VERSION, which clients report to their users"),
    Rule("OffsetDelete", "group_id='': topics*", "the error is that of the whole reply, and also of each partition"),
    # Topics
    Rule("CreateTopics", "topics.0.num_partitions=2147483647*: *.error_code", "INVALID_PARTITIONS, above the limit of "
         "partitions: in Apache Kafka POLICY_VIOLATION"),
    Rule("CreateTopics", "topics.0.configs=twice*: *", "Apache Kafka silently takes the last: SeaweedMQ rejects a "
         "contradictory request"),
    Rule("CreateTopics", "*: topics.*.configs.*", "as in DescribeConfigs"),
    Rule("CreateTopics", "*: topics.*.topic_id", "a validated topic has no id: Apache Kafka invents one"),
    Rule("CreateTopics", "timeout_ms=*: topics.*", "see timeout_ms above: the reply has the numbers of partitions and "
         "replicas"),
    Rule("CreatePartitions", "topics.0.count=2147483647*: *.error_code", "Apache Kafka fails (-1), or compares the "
         "assignment first: INVALID_PARTITIONS"),
    Rule("DeleteTopics", "timeout_ms=*: responses.*", "see timeout_ms above: a topic deleted with such a timeout no "
         "longer exists"),
    Rule("ElectLeaders", "timeout_ms=*: *", "see timeout_ms above"),
    Rule("ElectLeaders", "topic_partitions=None*: replica_election_results.*", "the reply for all partitions names "
         "those with a new leader: Apache Kafka also names their topics"),
    Rule("DescribeProducers", "topics.0.name=*: *.error_code", "no topic can have the name: the topic does not exist"),
    # Configs
    Rule("DescribeConfigs", "*: results.*.configs.seaweedmq.*", "configs of SeaweedMQ"),
    Rule("DescribeConfigs", "*: results.*.configs.fetch.max.bytes.value", "the largest reply of a broker: half of the "
         "memory for all replies, and at most the 55 MiB of Apache Kafka"),
    Rule("DescribeConfigs", "*: results.*.configs.min.insync.replicas.config_source", "a default: Apache Kafka sets it "
         "for the whole cluster at its creation"),
    Rule("DescribeConfigs", "*: results.*.configs.*", "brokers have their own configs, and those of Apache Kafka that "
         "apply, all set in files; topics show effective values: no retention unless set, log files of 128 MiB and 10 "
         "minutes"),
    Rule("AlterConfigs", "resources=twice*: *", "Apache Kafka never replies: INVALID_REQUEST"),
    Rule("IncrementalAlterConfigs", "resources=twice*: *", "one result, in Apache Kafka two: the same error"),
    Rule("IncrementalAlterConfigs", "*.config_operation=*: *.error_code", "Apache Kafka fails (-1) on an unknown "
         "operation: INVALID_CONFIG"),
    Rule("IncrementalAlterConfigs", "*.configs.0.value='' (2): *", "appending an empty value has no effect: in Apache "
         "Kafka an empty element is INVALID_CONFIG"),
    Rule("ListConfigResources", "resource_types=[[]]: config_resources", "broker loggers are not resources"),
    Rule("DescribeLogDirs", "*: results.*.log_dir", "the storage, which is not a directory of one broker"),
    Rule("DescribeLogDirs", "*: results.*.total_bytes", "-1, unknown for a storage that brokers share"),
    Rule("DescribeLogDirs", "*: results.*.usable_bytes", "as for total_bytes"),
    Rule("DescribeLogDirs", "*: results.*.partition_size", "the size of frames with their headers"),
    # Permissions and quotas
    *(
        Rule(api, "*=0: ", "Apache Kafka closes the connection on unknown values: SECURITY_DISABLED, as for others")
        for api in ("DescribeAcls", "CreateAcls", "DeleteAcls")
    ),
    Rule("DescribeClientQuotas", "components*: *", "there are no quotas, so every filter finds none"),
    # ApiVersions
    Rule("ApiVersions", "*: api_keys.*", "transactions, share groups, delegation tokens and KRaft are not advertised; "
         "versions from before Apache Kafka 4 are, for old clients"),
    Rule("ApiVersions", "*: *_features*", "features are those of KRaft's metadata, which does not exist here"),
)  # fmt: skip
