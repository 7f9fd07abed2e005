"""Good requests of every API. ``cases`` changes their fields one at a time."""

from collections.abc import Mapping, Sequence
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


ANY_ACL = {
    "resource_type_filter": 2, "resource_name_filter": "a", "pattern_type_filter": 3, "principal_filter": "User:a",
    "host_filter": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip


def _data(place: Place) -> dict[API, Sequence[Fields]]:
    """Return those of records, metadata and brokers."""
    made: dict[API, Sequence[Fields]] = {}
    records = batch(b"a", time_ms=place.t0_ms)
    part = {"index": 0, "records": records}
    topic = {"name": place.topic, "topic_id": place.topic_id, "partition_data": [part]}
    made[API.PRODUCE] = [{"transactional_id": None, "acks": -1, "timeout_ms": 5_000, "topic_data": [topic]}]
    part = {
        "partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }  # fmt: skip
    named = {"topic": place.topic, "topic_id": place.topic_id}
    one = {
        "cluster_id": None, "replica_id": -1, "max_wait_ms": 50, "min_bytes": 1, "max_bytes": 1 << 20,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1, "topics": [{**named, "partitions": [part]}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    made[API.FETCH] = [one, one | {"forgotten_topics_data": [{**named, "partitions": [1]}]}]
    part = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    topics = [{"name": place.topic, "partitions": [part]}]
    made[API.LIST_OFFSETS] = [{"replica_id": -1, "isolation_level": 0, "topics": topics, "timeout_ms": 5_000}]
    flags = {
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    made[API.METADATA] = [{"topics": [{"topic_id": UUID(int=0), "name": place.topic}], **flags}]
    made[API.API_VERSIONS] = [{"client_software_name": "compared", "client_software_version": "1.0"}]
    topics = [{"name": place.topic, "partitions": [{"partition_index": 0, "offset": 1}]}]
    made[API.DELETE_RECORDS] = [{"topics": topics, "timeout_ms": 20_000}]
    one = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    made[API.INIT_PRODUCER_ID] = [one]
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}
    made[API.OFFSET_FOR_LEADER_EPOCH] = [{"replica_id": -1, "topics": [{"topic": place.topic, "partitions": [part]}]}]
    made[API.DESCRIBE_LOG_DIRS] = [{"topics": [{"topic": place.topic, "partitions": [0]}]}]
    one = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}
    made[API.DESCRIBE_CLUSTER] = [one]
    made[API.DESCRIBE_PRODUCERS] = [{"topics": [{"name": place.topic, "partition_indexes": [0]}]}]
    one = {"topics": [{"name": place.topic}], "response_partition_limit": 2_000, "cursor": None}
    made[API.DESCRIBE_TOPIC_PARTITIONS] = [one, one | {"cursor": {"topic_name": place.topic, "partition_index": 1}}]
    return made


def _groups(place: Place) -> dict[API, Sequence[Fields]]:
    """Return those of groups."""
    made: dict[API, Sequence[Fields]] = {}
    part = {"partition_index": 0, "committed_offset": 2, "committed_leader_epoch": -1, "committed_metadata": "said"}
    one = {
        "group_id": place.committed, "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None,
        "retention_time_ms": -1, "topics": [{"name": place.topic, "partitions": [part]}],
    }  # fmt: skip
    made[API.OFFSET_COMMIT] = [one]
    topics = [{"name": place.topic, "partition_indexes": [0, 1]}]
    group = {"group_id": place.committed, "member_id": None, "member_epoch": -1, "topics": topics}
    made[API.OFFSET_FETCH] = [
        {"group_id": place.committed, "topics": topics, "groups": [group], "require_stable": False}
    ]
    made[API.FIND_COORDINATOR] = [{"key": place.group, "key_type": 0, "coordinator_keys": [place.group]}]
    one = {
        "group_id": place.fresh("joined"), "session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000,
        "member_id": "", "group_instance_id": None, "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(10)}], "reason": None,
    }  # fmt: skip
    made[API.JOIN_GROUP] = [one, one | {"group_instance_id": "static", "reason": "because"}]
    one = {
        "group_id": place.group,
        "generation_id": place.generation,
        "member_id": place.member_id,
        "group_instance_id": None,
    }
    made[API.HEARTBEAT] = [one]
    member = {"member_id": place.member_id, "group_instance_id": None, "reason": None}
    made[API.LEAVE_GROUP] = [{"group_id": place.group, "member_id": place.member_id, "members": [member]}]
    one = {
        "group_id": place.group, "generation_id": place.generation, "member_id": place.member_id,
        "group_instance_id": None, "protocol_type": "consumer", "protocol_name": "range",
        "assignments": [{"member_id": place.member_id, "assignment": b"share"}],
    }  # fmt: skip
    made[API.SYNC_GROUP] = [one]
    made[API.DESCRIBE_GROUPS] = [{"groups": [place.group], "include_authorized_operations": False}]
    made[API.LIST_GROUPS] = [
        {"states_filter": [], "types_filter": []},
        {"states_filter": ["Stable"], "types_filter": ["classic"]},
    ]
    made[API.DELETE_GROUPS] = [{"groups_names": [place.committed]}]
    topics = [{"name": place.topic, "partitions": [{"partition_index": 0}]}]
    made[API.OFFSET_DELETE] = [{"group_id": place.committed, "topics": topics}]
    one = {
        "group_id": place.fresh("consumers"), "member_id": "AAAAAAAAAAAAAAAAAAAAAQ", "member_epoch": 0,
        "instance_id": None, "rack_id": None, "rebalance_timeout_ms": 30_000, "subscribed_topic_names": [place.topic],
        "subscribed_topic_regex": None, "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    made[API.CONSUMER_GROUP_HEARTBEAT] = [one]
    return made


def _admin(place: Place) -> dict[API, Sequence[Fields]]:
    """Return those of topics, configs and permissions."""
    made: dict[API, Sequence[Fields]] = {}
    one = {
        "name": place.fresh("created"), "num_partitions": 1, "replication_factor": 1, "assignments": [],
        "configs": [{"name": "retention.ms", "value": "3600000"}],
    }  # fmt: skip
    placed = {
        "num_partitions": -1,
        "replication_factor": -1,
        "assignments": [{"partition_index": 0, "broker_ids": [place.node_id]}],
    }
    base = {"timeout_ms": 20_000, "validate_only": True}
    made[API.CREATE_TOPICS] = [{"topics": [one], **base}, {"topics": [one | placed], **base}]
    by_name = {"name": place.topic, "topic_id": UUID(int=0)}
    by_id = {"name": None, "topic_id": place.topic_id}
    base = {"topic_names": [place.topic], "timeout_ms": 20_000}
    made[API.DELETE_TOPICS] = [{"topics": [by_name], **base}, {"topics": [by_id], **base}]
    made[API.DESCRIBE_ACLS] = [ANY_ACL]
    one = {
        "resource_type": 2, "resource_name": "a", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3,
    }  # fmt: skip
    made[API.CREATE_ACLS] = [{"creations": [one]}]
    made[API.DELETE_ACLS] = [{"filters": [ANY_ACL]}]
    base = {"include_synonyms": False, "include_documentation": False}
    topic = {"resource_type": 2, "resource_name": place.topic, "configuration_keys": ["cleanup.policy"]}
    broker = {"resource_type": 4, "resource_name": str(place.node_id), "configuration_keys": ["log.cleanup.policy"]}
    made[API.DESCRIBE_CONFIGS] = [{"resources": [topic], **base}, {"resources": [broker], **base}]
    configs = [{"name": "retention.ms", "value": "3600000"}]
    topic = {"resource_type": 2, "resource_name": place.topic, "configs": configs}
    made[API.ALTER_CONFIGS] = [{"resources": [topic], "validate_only": True}]
    one = {"name": place.topic, "count": PARTITIONS + 1, "assignments": None}
    placed = one | {"assignments": [{"broker_ids": [place.node_id]}]}
    base = {"timeout_ms": 20_000, "validate_only": True}
    made[API.CREATE_PARTITIONS] = [{"topics": [one], **base}, {"topics": [placed], **base}]
    asked = [{"topic": place.topic, "partitions": [0]}]
    made[API.ELECT_LEADERS] = [{"election_type": 0, "topic_partitions": asked, "timeout_ms": 5_000}]
    configs = [{"name": "retention.ms", "config_operation": 0, "value": "3600000"}]
    listed = [{"name": "cleanup.policy", "config_operation": 2, "value": "compact"}]
    topic = {"resource_type": 2, "resource_name": place.topic, "configs": configs}
    made[API.INCREMENTAL_ALTER_CONFIGS] = [
        {"resources": [topic], "validate_only": True},
        {"resources": [topic | {"configs": listed}], "validate_only": True},
    ]
    made[API.LIST_PARTITION_REASSIGNMENTS] = [
        {"timeout_ms": 5_000, "topics": [{"name": place.topic, "partition_indexes": [0]}]}
    ]
    made[API.DESCRIBE_CLIENT_QUOTAS] = [
        {"components": [{"entity_type": "user", "match_type": 0, "match": "a"}], "strict": False}
    ]
    made[API.LIST_CONFIG_RESOURCES] = [{"resource_types": [2]}]
    return made


def good(place: Place) -> Mapping[API, Sequence[Fields]]:
    """Return good requests by API, in the order in which they are sent: several where fields depend on one another."""
    return {**_data(place), **_groups(place), **_admin(place)}
