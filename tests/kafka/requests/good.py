"""Good requests of every API. ``cases`` changes their fields one at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from seaweedmq.kafka.wire.messages import API, UUID
from tests.kafka.differential.batches import batch

Fields: TypeAlias = dict[str, Any]
PARTITIONS = 2
RECORDS = 3
"""Number of records in the first partition of the topic."""


@dataclass(slots=True)
class Place:
    """Topic, groups and member at one broker for the requests of one API in one version."""

    prefix: str
    """Beginning of all names of this place."""
    t0_ms: int
    node_id: int
    topic_id: UUID = UUID(int=0)  # noqa: RUF009 - a value
    member_id: str = ""
    generation: int = -1
    number: int = 0
    """Number of the case, for names that no other case has."""

    @property
    def topic(self) -> str:
        return f"{self.prefix}topic"

    @property
    def group(self) -> str:
        """A group, which has a member if the API needs one."""
        return f"{self.prefix}group"

    @property
    def committed(self) -> str:
        """A group without members, with an offset for the first partition."""
        return f"{self.prefix}committed"

    @property
    def own(self) -> str:
        """Beginning of names that no other case has."""
        return f"{self.prefix}{self.number}-"

    def fresh(self, stem: str) -> str:
        """Return a name that no other case has."""
        return f"{self.prefix}{stem}-{self.number}"


NEED_TOPIC = frozenset(
    {
        *(API.PRODUCE, API.FETCH, API.LIST_OFFSETS, API.METADATA, API.OFFSET_COMMIT, API.OFFSET_FETCH),
        *(API.DELETE_TOPICS, API.DELETE_RECORDS, API.OFFSET_FOR_LEADER_EPOCH, API.DESCRIBE_CONFIGS, API.ALTER_CONFIGS),
        *(API.DESCRIBE_LOG_DIRS, API.CREATE_PARTITIONS, API.ELECT_LEADERS, API.INCREMENTAL_ALTER_CONFIGS),
        *(API.LIST_PARTITION_REASSIGNMENTS, API.OFFSET_DELETE, API.DESCRIBE_PRODUCERS, API.DESCRIBE_TOPIC_PARTITIONS),
        API.CONSUMER_GROUP_HEARTBEAT,
    }
)
NEED_MEMBER = frozenset({API.HEARTBEAT, API.SYNC_GROUP, API.LEAVE_GROUP, API.DESCRIBE_GROUPS, API.LIST_GROUPS})
NEED_OFFSETS = frozenset({API.OFFSET_FETCH, API.OFFSET_DELETE, API.DELETE_GROUPS, API.OFFSET_COMMIT})


def _produce(place: Place) -> Sequence[Fields]:
    records = batch(b"a", time_ms=place.t0_ms)
    part = {"index": 0, "records": records}
    topic = {"name": place.topic, "topic_id": place.topic_id, "partition_data": [part]}
    return [{"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": [topic]}]


def _fetch(place: Place) -> Sequence[Fields]:
    part = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    named = {"topic": place.topic, "topic_id": place.topic_id}
    one = {
        "cluster_id": None,
        "replica_id": -1,
        "max_wait_ms": 50,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{**named, "partitions": [part]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return [one, one | {"forgotten_topics_data": [{**named, "partitions": [1]}]}]


def _list_offsets(place: Place) -> Sequence[Fields]:
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": place.topic, "partitions": [part]}]
    return [{"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 5_000}]


def _metadata(place: Place) -> Sequence[Fields]:
    flags = {
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return [{"topics": [{"topic_id": UUID(int=0), "name": place.topic}], **flags}]


def _offset_commit(place: Place) -> Sequence[Fields]:
    part = {
        "partition_index": 0,
        "committed_offset": 2,
        "committed_leader_epoch": -1,
        "committed_metadata": "said",
    }
    one = {
        "group_id": place.committed,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "retention_time_ms": -1,
        "topics": [{"name": place.topic, "partitions": [part]}],
    }
    return [one]


def _offset_fetch(place: Place) -> Sequence[Fields]:
    topics = [{"name": place.topic, "partition_indexes": [0, 1]}]
    group = {"group_id": place.committed, "member_id": None, "member_epoch": -1, "topics": topics}
    return [{"group_id": place.committed, "topics": topics, "groups": [group], "require_stable": False}]


def _find_coordinator(place: Place) -> Sequence[Fields]:
    return [{"key": place.group, "key_type": 0, "coordinator_keys": [place.group]}]


def _join(place: Place) -> Sequence[Fields]:
    one = {
        "group_id": place.fresh("joined"),
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 30_000,
        "member_id": "",
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(10)}],
        "reason": None,
    }
    return [one, one | {"group_instance_id": "static", "reason": "because"}]


def _heartbeat(place: Place) -> Sequence[Fields]:
    one = {
        "group_id": place.group,
        "generation_id": place.generation,
        "member_id": place.member_id,
        "group_instance_id": None,
    }
    return [one]


def _leave(place: Place) -> Sequence[Fields]:
    member = {"member_id": place.member_id, "group_instance_id": None, "reason": None}
    return [{"group_id": place.group, "member_id": place.member_id, "members": [member]}]


def _sync(place: Place) -> Sequence[Fields]:
    one = {
        "group_id": place.group,
        "generation_id": place.generation,
        "member_id": place.member_id,
        "group_instance_id": None,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "assignments": [{"member_id": place.member_id, "assignment": b"share"}],
    }
    return [one]


def _describe_groups(place: Place) -> Sequence[Fields]:
    return [{"groups": [place.group], "include_authorized_operations": False}]


def _list_groups(place: Place) -> Sequence[Fields]:
    return [
        {"states_filter": [], "types_filter": []},
        {"states_filter": ["Stable"], "types_filter": ["classic"]},
    ]


def _api_versions(place: Place) -> Sequence[Fields]:
    return [{"client_software_name": "compared", "client_software_version": "1.0"}]


def _create_topics(place: Place) -> Sequence[Fields]:
    one = {
        "name": place.fresh("created"),
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [{"name": "retention.ms", "value": "3600000"}],
    }
    placed = {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [place.node_id]}],
    }
    base = {"timeout_ms": 20_000, "validate_only": True}
    return [{"topics": [one], **base}, {"topics": [one | placed], **base}]


def _delete_topics(place: Place) -> Sequence[Fields]:
    by_name = {"name": place.topic, "topic_id": UUID(int=0)}
    by_id = {"name": None, "topic_id": place.topic_id}
    base = {"topic_names": [place.topic], "timeout_ms": 20_000}
    return [{"topics": [by_name], **base}, {"topics": [by_id], **base}]


def _delete_records(place: Place) -> Sequence[Fields]:
    topics = [{"name": place.topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
    return [{"topics": topics, "timeout_ms": 20_000}]


def _init_producer_id(place: Place) -> Sequence[Fields]:
    one = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return [one]


def _epochs(place: Place) -> Sequence[Fields]:
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    return [{"replica_id": -1, "topics": [{"topic": place.topic, "partitions": [part]}]}]


ANY_ACL = {
    "resource_type_filter": 2,
    "resource_name_filter": "a",
    "pattern_type_filter": 3,
    "principal_filter": "User:a",
    "host_filter": "*",
    "operation": 3,
    "permission_type": 3,
}


def _describe_acls(place: Place) -> Sequence[Fields]:
    return [ANY_ACL]


def _create_acls(place: Place) -> Sequence[Fields]:
    one = {
        "resource_type": 2,
        "resource_name": "a",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return [{"creations": [one]}]


def _delete_acls(place: Place) -> Sequence[Fields]:
    return [{"filters": [ANY_ACL]}]


def _describe_configs(place: Place) -> Sequence[Fields]:
    base = {"include_synonyms": False, "include_documentation": False}
    topic = {"resource_type": 2, "resource_name": place.topic, "configuration_keys": ["cleanup.policy"]}
    broker = {"resource_type": 4, "resource_name": str(place.node_id), "configuration_keys": ["log.cleanup.policy"]}
    return [{"resources": [topic], **base}, {"resources": [broker], **base}]


def _alter_configs(place: Place) -> Sequence[Fields]:
    configs = [{"name": "retention.ms", "value": "3600000"}]
    topic = {"resource_type": 2, "resource_name": place.topic, "configs": configs}
    return [{"resources": [topic], "validate_only": True}]


def _incremental_alter_configs(place: Place) -> Sequence[Fields]:
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "3600000"}]
    listed = [{"name": "cleanup.policy", "config_operation": 2, "value": "compact"}]
    topic = {"resource_type": 2, "resource_name": place.topic, "configs": configs}
    return [
        {"resources": [topic], "validate_only": True},
        {"resources": [topic | {"configs": listed}], "validate_only": True},
    ]


def _describe_log_dirs(place: Place) -> Sequence[Fields]:
    return [{"topics": [{"topic": place.topic, "partitions": [0]}]}]


def _create_partitions(place: Place) -> Sequence[Fields]:
    one = {"name": place.topic, "count": PARTITIONS + 1, "assignments": None}
    placed = one | {"assignments": [{"broker_ids": [place.node_id]}]}
    base = {"timeout_ms": 20_000, "validate_only": True}
    return [{"topics": [one], **base}, {"topics": [placed], **base}]


def _delete_groups(place: Place) -> Sequence[Fields]:
    return [{"groups_names": [place.committed]}]


def _elect_leaders(place: Place) -> Sequence[Fields]:
    asked = [{"topic": place.topic, "partitions": [0]}]
    return [{"election_type": 0, "topic_partitions": asked, "timeout_ms": 5_000}]


def _reassignments(place: Place) -> Sequence[Fields]:
    return [{"timeout_ms": 5_000, "topics": [{"name": place.topic, "partition_indexes": [0]}]}]


def _offset_delete(place: Place) -> Sequence[Fields]:
    topics = [{"name": place.topic, "partitions": [{"partition_index": 0}]}]
    return [{"group_id": place.committed, "topics": topics}]


def _quotas(place: Place) -> Sequence[Fields]:
    return [{"components": [{"entity_type": "user", "match_type": 0, "match": "a"}], "strict": False}]


def _describe_cluster(place: Place) -> Sequence[Fields]:
    one = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    return [one]


def _describe_producers(place: Place) -> Sequence[Fields]:
    return [{"topics": [{"name": place.topic, "partition_indexes": [0]}]}]


def _consumer_heartbeat(place: Place) -> Sequence[Fields]:
    one = {
        "group_id": place.fresh("consumers"),
        "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
        "member_epoch": 0,
        "instance_id": None,
        "rack_id": None,
        "rebalance_timeout_ms": 30_000,
        "subscribed_topic_names": [place.topic],
        "subscribed_topic_regex": None,
        "server_assignor": None,
        "topic_partitions": [],
    }
    return [one]


def _config_resources(place: Place) -> Sequence[Fields]:
    return [{"resource_types": [2]}]


def _topic_partitions(place: Place) -> Sequence[Fields]:
    one = {"topics": [{"name": place.topic}], "response_partition_limit": 2_000, "cursor": None}
    return [one, one | {"cursor": {"topic_name": place.topic, "partition_index": 1}}]


GOOD: Mapping[API, Callable[[Place], Sequence[Fields]]] = {
    API.PRODUCE: _produce,
    API.FETCH: _fetch,
    API.LIST_OFFSETS: _list_offsets,
    API.METADATA: _metadata,
    API.OFFSET_COMMIT: _offset_commit,
    API.OFFSET_FETCH: _offset_fetch,
    API.FIND_COORDINATOR: _find_coordinator,
    API.JOIN_GROUP: _join,
    API.HEARTBEAT: _heartbeat,
    API.LEAVE_GROUP: _leave,
    API.SYNC_GROUP: _sync,
    API.DESCRIBE_GROUPS: _describe_groups,
    API.LIST_GROUPS: _list_groups,
    API.API_VERSIONS: _api_versions,
    API.CREATE_TOPICS: _create_topics,
    API.DELETE_TOPICS: _delete_topics,
    API.DELETE_RECORDS: _delete_records,
    API.INIT_PRODUCER_ID: _init_producer_id,
    API.OFFSET_FOR_LEADER_EPOCH: _epochs,
    API.DESCRIBE_ACLS: _describe_acls,
    API.CREATE_ACLS: _create_acls,
    API.DELETE_ACLS: _delete_acls,
    API.DESCRIBE_CONFIGS: _describe_configs,
    API.ALTER_CONFIGS: _alter_configs,
    API.DESCRIBE_LOG_DIRS: _describe_log_dirs,
    API.CREATE_PARTITIONS: _create_partitions,
    API.DELETE_GROUPS: _delete_groups,
    API.ELECT_LEADERS: _elect_leaders,
    API.INCREMENTAL_ALTER_CONFIGS: _incremental_alter_configs,
    API.LIST_PARTITION_REASSIGNMENTS: _reassignments,
    API.OFFSET_DELETE: _offset_delete,
    API.DESCRIBE_CLIENT_QUOTAS: _quotas,
    API.DESCRIBE_CLUSTER: _describe_cluster,
    API.DESCRIBE_PRODUCERS: _describe_producers,
    API.CONSUMER_GROUP_HEARTBEAT: _consumer_heartbeat,
    API.LIST_CONFIG_RESOURCES: _config_resources,
    API.DESCRIBE_TOPIC_PARTITIONS: _topic_partitions,
}
"""Good requests by API, in the order in which they are sent: several where fields depend on one another."""
