"""The differences between requests' answers that are meant, each with its reason."""

from tests.kafka.differential.comparison import Rule

MEANT: tuple[Rule, ...] = (
    # All
    Rule("*", "*: *.aborted_transactions", "null where Apache Kafka has an empty list: none, both times"),
    Rule("*", "timeout_ms=*: *error_code", "Apache Kafka fails with REQUEST_TIMED_OUT if it is given no time, or a "
         "negative one: SeaweedMQ takes the time that it needs for one request"),
    # Produce
    Rule("Produce", "good: ", "Apache Kafka 4 advertises versions 0 to 2 for librdkafka's sake and hangs up: the "
         "answer is UNSUPPORTED_VERSION"),
    Rule("Produce", "*=twice: *", "Apache Kafka drops one of two batches for one partition without a word: both are "
         "taken, in order, and both are answered"),
    Rule("Produce", "good: *.base_offset", "one record more was taken, see above"),
    Rule("Produce", "*.records=None: ", "Apache Kafka never answers: INVALID_RECORD"),
    Rule("Produce", "*.records=100 zeros: *.error_code", "INVALID_RECORD, as for any length that is not the batch's: "
         "to send it again would not help, as CORRUPT_MESSAGE says"),
    # Fetch
    Rule("Fetch", "replica_id=*: *", "replicas of SeaweedMQ do not fetch: a client that says that it is one is a "
         "consumer"),
    Rule("Fetch", "*max_bytes=-*: *", "Apache Kafka fails (-1): as 0, which brings one batch"),
    Rule("Fetch", "isolation_level=*: *", "Apache Kafka fails (-1) with a level that does not exist: records are read "
         "as not committed"),
    Rule("Fetch", "session_id=*: *", "Apache Kafka fails (-1) with some ids: a session that does not exist ends"),
    Rule("Fetch", "*.last_fetched_epoch=*: *", "replicas alone fetch with it, and it is not compared"),
    # Offsets
    Rule("ListOffsets", "topics=twice: topics", "each topic of the request is answered, in Apache Kafka once: the "
         "error is the same"),
    Rule("ListOffsets", "isolation_level=*: *", "as of Fetch"),
    Rule("OffsetForLeaderEpoch", "*.leader_epoch=-*: *", "Apache Kafka answers a negative epoch with itself and the "
         "start of the log: there is none, -1"),
    # Metadata
    Rule("Metadata", "topics.0.name='no-such': *", "a topic is created before the answer, which has its partitions: "
         "Apache Kafka answers UNKNOWN_TOPIC_OR_PARTITION first"),
    Rule("Metadata", "topics.0.name=None: *", "Apache Kafka fails (-1) for a topic with neither name nor id: "
         "INVALID_REQUEST"),
    Rule("DescribeTopicPartitions", "topics.0.name='': *", "Apache Kafka fails (-1): INVALID_TOPIC_EXCEPTION"),
    Rule("DescribeTopicPartitions", "cursor.partition_index=*: next_cursor", "a sum that overflows in Apache Kafka"),
    # Groups
    Rule("FindCoordinator", "key_type=1: *", "there are no transactions: the code is one that producers report at "
         "once"),
    Rule("InitProducerId", "transactional_id=*: *", "there are no transactions: the code is one that producers report "
         "at once"),
    Rule("JoinGroup", "protocols=twice*: ", "Apache Kafka never answers: the second one of a name counts"),
    Rule("JoinGroup", "protocols.0.metadata=*: ", "Apache Kafka never answers where the subscription cannot be read: "
         "only members read it"),
    Rule("JoinGroup", "protocol_type=300 characters*: *", "249 characters at most, since members are kept in memory"),
    Rule("JoinGroup", "protocols.0.name=300 characters*: *", "as of protocol_type"),
    Rule("JoinGroup", "group_instance_id=*: *", "from 1 to 249 characters, as Java's client checks"),
    Rule("ConsumerGroupHeartbeat", "*: *", "consumers of the new group protocol (KIP-848) are not there yet: the code "
         "is UNSUPPORTED_VERSION, which clients report to their users"),
    Rule("OffsetDelete", "group_id='': topics*", "the error is the whole reply's, and also of each partition"),
    # Topics
    Rule("CreateTopics", "topics.0.num_partitions=2147483647*: *.error_code", "INVALID_PARTITIONS, beyond the limit of "
         "partitions: in Apache Kafka POLICY_VIOLATION"),
    Rule("CreateTopics", "topics.0.configs=twice*: *", "Apache Kafka silently takes the last: a request that "
         "contradicts itself is rejected"),
    Rule("CreateTopics", "*: topics.*.configs.*", "as of DescribeConfigs"),
    Rule("CreateTopics", "*: topics.*.topic_id", "a topic that is only checked has no id: Apache Kafka makes one up"),
    Rule("CreateTopics", "timeout_ms=*: topics.*", "see timeout_ms above: with numbers of partitions and replicas"),
    Rule("CreatePartitions", "topics.0.count=2147483647*: *.error_code", "Apache Kafka fails (-1), or compares the "
         "assignment first: INVALID_PARTITIONS"),
    Rule("DeleteTopics", "timeout_ms=*: responses.*", "see timeout_ms above: what was deleted with no time is gone "
         "already"),
    Rule("ElectLeaders", "timeout_ms=*: *", "see timeout_ms above"),
    Rule("ElectLeaders", "topic_partitions=None*: replica_election_results.*", "of all partitions those are named that "
         "got another leader: Apache Kafka also names their topics"),
    Rule("DescribeProducers", "topics.0.name=*: *.error_code", "no topic can have the name: it does not exist"),
    # Configs
    Rule("DescribeConfigs", "*: results.*.configs.seaweedmq.*", "SeaweedMQ's own"),
    Rule("DescribeConfigs", "*: results.*.configs.fetch.max.bytes.value", "the largest reply that a broker makes: half "
         "of the memory for all replies together, and at most the 55 MiB of Apache Kafka"),
    Rule("DescribeConfigs", "*: results.*.configs.min.insync.replicas.config_source", "a default: Apache Kafka sets it "
         "for the whole cluster when that is created"),
    Rule("DescribeConfigs", "*: results.*.configs.*", "brokers have configs of their own, and those of Apache Kafka's "
         "that mean something here, which are in files; topics have true values: no retention unless one is set, log "
         "files of 128 MiB and 10 minutes"),
    Rule("AlterConfigs", "resources=twice*: *", "Apache Kafka never answers: INVALID_REQUEST"),
    Rule("IncrementalAlterConfigs", "resources=twice*: *", "answered once, in Apache Kafka twice: the same error"),
    Rule("IncrementalAlterConfigs", "*.config_operation=*: *.error_code", "Apache Kafka fails (-1) with an operation "
         "that does not exist: INVALID_CONFIG"),
    Rule("IncrementalAlterConfigs", "*.configs.0.value='' (2): *", "to append nothing changes nothing: in Apache Kafka "
         "an empty element is INVALID_CONFIG"),
    Rule("ListConfigResources", "resource_types=[[]]: config_resources", "loggers of brokers are not resources"),
    Rule("DescribeLogDirs", "*: results.*.log_dir", "the storage, which is not one broker's folder"),
    Rule("DescribeLogDirs", "*: results.*.total_bytes", "not known of a storage that brokers share: -1"),
    Rule("DescribeLogDirs", "*: results.*.usable_bytes", "as of total_bytes"),
    Rule("DescribeLogDirs", "*: results.*.partition_size", "of frames, with their headers"),
    # Rights and quotas
    *(
        Rule(api, "*=0: ", "Apache Kafka hangs up on values that do not exist: SECURITY_DISABLED, as for any other")
        for api in ("DescribeAcls", "CreateAcls", "DeleteAcls")
    ),
    Rule("DescribeClientQuotas", "components*: *", "there are no quotas, so that nothing is found by any filter"),
    # ApiVersions
    Rule("ApiVersions", "*: api_keys.*", "transactions, share groups, delegation tokens and KRaft are not advertised, "
         "and versions from before Apache Kafka 4 are, for old clients"),
    Rule("ApiVersions", "*: *_features*", "features are those of KRaft's metadata, of which there is none"),
)  # fmt: skip
