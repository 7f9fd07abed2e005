"""Requests of many elements, of each Kafka API whose elements have a cost."""

from collections.abc import Callable, Mapping

from benchmarks.kafka.batches import batch_of
from benchmarks.kafka.wire import ACKS_ALL, PRODUCE_VERSION, encoded
from seaweedmq.kafka.wire.frames import elements_max
from seaweedmq.kafka.wire.messages import API, REQUESTS

TOPIC, GROUP = "neighbors", "neighbors"
"""A topic of one partition in the namespace ``kafka``, and a group without members."""


def topics_named(number: int) -> list[object]:
    make = REQUESTS[API.METADATA].MetadataRequestTopic
    return [make(name=TOPIC if not one else f"t{one}") for one in range(number)]


def _metadata(number: int) -> bytes:
    return encoded(API.METADATA, 4, topics=topics_named(number), allow_auto_topic_creation=False)


def _describe_groups(number: int) -> bytes:
    return encoded(API.DESCRIBE_GROUPS, 0, groups=[f"g{n}" for n in range(number)])


def _delete_groups(number: int) -> bytes:
    return encoded(API.DELETE_GROUPS, 0, groups_names=[f"g{n}" for n in range(number)])


def _find_coordinators(number: int) -> bytes:
    keys = [f"g{n}" for n in range(number)]
    return encoded(API.FIND_COORDINATOR, 4, coordinator_keys=keys, key_type=0)


def _commit(number: int) -> bytes:
    make = REQUESTS[API.OFFSET_COMMIT].OffsetCommitRequestTopic
    of_each = make.OffsetCommitRequestPartition
    parts = [of_each(partition_index=n, committed_offset=1, committed_metadata="") for n in range(number - 1)]
    topics = [make(name=TOPIC, partitions=parts)]
    fields = {"group_id": GROUP, "generation_id_or_member_epoch": -1, "member_id": "", "retention_time_ms": -1}
    return encoded(API.OFFSET_COMMIT, 2, topics=topics, **fields)


def _fetch_offsets(number: int) -> bytes:
    make = REQUESTS[API.OFFSET_FETCH].OffsetFetchRequestTopic
    indexes = list(range(number - 1))
    return encoded(API.OFFSET_FETCH, 5, group_id=GROUP, topics=[make(name=TOPIC, partition_indexes=indexes)])


def _list_offsets(number: int) -> bytes:
    make = REQUESTS[API.LIST_OFFSETS].ListOffsetsTopic
    parts = [make.ListOffsetsPartition(partition_index=n, timestamp=-1) for n in range(number - 1)]
    return encoded(API.LIST_OFFSETS, 2, replica_id=-1, isolation_level=0, topics=[make(name=TOPIC, partitions=parts)])


def _fetch(number: int) -> bytes:
    make = REQUESTS[API.FETCH].FetchTopic
    parts = [
        make.FetchPartition(
            partition=n, fetch_offset=0, current_leader_epoch=-1, log_start_offset=-1, partition_max_bytes=1
        )
        for n in range(number - 1)
    ]
    return encoded(
        API.FETCH,
        11,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[make(topic=TOPIC, partitions=parts)],
        forgotten_topics_data=[],
        rack_id="",
    )


def _create_topics(number: int) -> bytes:
    """Return a request that is only validated: created topics would distort the figures, and stay."""
    make = REQUESTS[API.CREATE_TOPICS].CreatableTopic
    topics = [
        make(name=f"t{n}", num_partitions=1, replication_factor=1, assignments=[], configs=[]) for n in range(number)
    ]
    return encoded(API.CREATE_TOPICS, 2, topics=topics, timeout_ms=1_000, validate_only=True)


def _delete_topics(number: int) -> bytes:
    names = [f"t{n}" for n in range(number)]
    return encoded(API.DELETE_TOPICS, 3, topic_names=names, timeout_ms=1_000)


def _describe_configs(number: int) -> bytes:
    make = REQUESTS[API.DESCRIBE_CONFIGS].DescribeConfigsResource
    resources = [make(resource_type=2, resource_name=TOPIC, configuration_keys=None) for _ in range(number)]
    return encoded(API.DESCRIBE_CONFIGS, 1, resources=resources, include_synonyms=True)


def _produce(number: int) -> bytes:
    """Return a request for partitions of which only the first exists: each batch is small, and all are checked."""
    make = REQUESTS[API.PRODUCE].TopicProduceData
    batch = batch_of([b"x"])
    parts = [make.PartitionProduceData(index=n, records=batch) for n in range(number - 1)]
    topics = [make(name=TOPIC, partition_data=parts)]
    return encoded(
        API.PRODUCE, PRODUCE_VERSION, transactional_id=None, acks=ACKS_ALL, timeout_ms=30_000, topic_data=topics
    )


def _leave_group(number: int) -> bytes:
    make = REQUESTS[API.LEAVE_GROUP].MemberIdentity
    members = [make(member_id=f"m{n}", group_instance_id=None) for n in range(number)]
    return encoded(API.LEAVE_GROUP, 3, group_id=GROUP, members=members)


def _delete_records(number: int) -> bytes:
    make = REQUESTS[API.DELETE_RECORDS].DeleteRecordsTopic
    parts = [make.DeleteRecordsPartition(partition_index=n, offset=0) for n in range(number - 1)]
    return encoded(API.DELETE_RECORDS, 1, topics=[make(name=TOPIC, partitions=parts)], timeout_ms=1_000)


def _offset_for_leader_epoch(number: int) -> bytes:
    make = REQUESTS[API.OFFSET_FOR_LEADER_EPOCH].OffsetForLeaderTopic
    parts = [
        make.OffsetForLeaderPartition(partition=n, current_leader_epoch=-1, leader_epoch=0) for n in range(number - 1)
    ]
    return encoded(API.OFFSET_FOR_LEADER_EPOCH, 3, replica_id=-2, topics=[make(topic=TOPIC, partitions=parts)])


def _describe_topic_partitions(number: int) -> bytes:
    make = REQUESTS[API.DESCRIBE_TOPIC_PARTITIONS].TopicRequest
    topics = [make(name=f"t{n}") for n in range(number)]
    return encoded(API.DESCRIBE_TOPIC_PARTITIONS, 0, topics=topics, response_partition_limit=2_000, cursor=None)


def _create_partitions(number: int) -> bytes:
    make = REQUESTS[API.CREATE_PARTITIONS].CreatePartitionsTopic
    topics = [make(name=f"t{n}", count=2, assignments=None) for n in range(number)]
    return encoded(API.CREATE_PARTITIONS, 1, topics=topics, timeout_ms=1_000, validate_only=True)


def _alter_configs(number: int) -> bytes:
    make = REQUESTS[API.INCREMENTAL_ALTER_CONFIGS].AlterConfigsResource
    resources = [make(resource_type=2, resource_name=f"t{n}", configs=[]) for n in range(number)]
    return encoded(API.INCREMENTAL_ALTER_CONFIGS, 0, resources=resources, validate_only=True)


def _describe_producers(number: int) -> bytes:
    make = REQUESTS[API.DESCRIBE_PRODUCERS].TopicRequest
    indexes = list(range(number - 1))
    return encoded(API.DESCRIBE_PRODUCERS, 0, topics=[make(name=TOPIC, partition_indexes=indexes)])


def _describe_log_dirs(number: int) -> bytes:
    make = REQUESTS[API.DESCRIBE_LOG_DIRS].DescribableLogDirTopic
    indexes = list(range(number - 1))
    return encoded(API.DESCRIBE_LOG_DIRS, 1, topics=[make(topic=TOPIC, partitions=indexes)])


def _offset_delete(number: int) -> bytes:
    make = REQUESTS[API.OFFSET_DELETE].OffsetDeleteRequestTopic
    parts = [make.OffsetDeleteRequestPartition(partition_index=n) for n in range(number - 1)]
    return encoded(API.OFFSET_DELETE, 0, group_id=GROUP, topics=[make(name=TOPIC, partitions=parts)])


def _elect_leaders(number: int) -> bytes:
    make = REQUESTS[API.ELECT_LEADERS].TopicPartitions
    topics = [make(topic=TOPIC, partitions=list(range(number - 1)))]
    return encoded(API.ELECT_LEADERS, 1, election_type=0, topic_partitions=topics, timeout_ms=1_000)


OF_MANY: Mapping[API, Callable[[int], bytes]] = {
    API.PRODUCE: _produce,
    API.METADATA: _metadata,
    API.FETCH: _fetch,
    API.LIST_OFFSETS: _list_offsets,
    API.OFFSET_COMMIT: _commit,
    API.OFFSET_FETCH: _fetch_offsets,
    API.DESCRIBE_GROUPS: _describe_groups,
    API.DELETE_GROUPS: _delete_groups,
    API.FIND_COORDINATOR: _find_coordinators,
    API.CREATE_TOPICS: _create_topics,
    API.DELETE_TOPICS: _delete_topics,
    API.DESCRIBE_CONFIGS: _describe_configs,
    API.LEAVE_GROUP: _leave_group,
    API.DELETE_RECORDS: _delete_records,
    API.OFFSET_FOR_LEADER_EPOCH: _offset_for_leader_epoch,
    API.DESCRIBE_TOPIC_PARTITIONS: _describe_topic_partitions,
    API.CREATE_PARTITIONS: _create_partitions,
    API.INCREMENTAL_ALTER_CONFIGS: _alter_configs,
    API.DESCRIBE_PRODUCERS: _describe_producers,
    API.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    API.OFFSET_DELETE: _offset_delete,
    API.ELECT_LEADERS: _elect_leaders,
}
"""Return requests of so many elements."""


def largest(api: API) -> bytes:
    """Return the request with the most elements that a broker accepts."""
    return OF_MANY[api](elements_max(api))
