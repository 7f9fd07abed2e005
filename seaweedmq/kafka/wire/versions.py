"""Table of the supported APIs and versions. ``python -m seaweedmq.kafka.wire.versions`` writes ``APIS.md``."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from seaweedmq.kafka.wire.messages import API

DOCUMENT = Path(__file__).parents[1] / "APIS.md"


@dataclass(frozen=True, slots=True)
class Versions:
    """The supported versions of one API, both ends included."""

    lowest: int
    highest: int

    def __contains__(self, version: int) -> bool:
        return self.lowest <= version <= self.highest


ADVERTISED: Mapping[API, Versions] = {
    API.PRODUCE: Versions(0, 13),
    API.FETCH: Versions(4, 17),
    API.LIST_OFFSETS: Versions(1, 10),
    API.METADATA: Versions(0, 13),
    API.OFFSET_COMMIT: Versions(2, 9),
    API.OFFSET_FETCH: Versions(1, 9),
    API.FIND_COORDINATOR: Versions(0, 5),
    API.JOIN_GROUP: Versions(0, 9),
    API.HEARTBEAT: Versions(0, 4),
    API.LEAVE_GROUP: Versions(0, 5),
    API.SYNC_GROUP: Versions(0, 5),
    API.DESCRIBE_GROUPS: Versions(0, 6),
    API.LIST_GROUPS: Versions(0, 5),
    API.API_VERSIONS: Versions(0, 4),
    API.CREATE_TOPICS: Versions(0, 7),
    API.DELETE_TOPICS: Versions(0, 6),
    API.DELETE_RECORDS: Versions(0, 2),
    API.INIT_PRODUCER_ID: Versions(0, 5),
    API.OFFSET_FOR_LEADER_EPOCH: Versions(2, 4),
    API.DESCRIBE_ACLS: Versions(1, 3),
    API.CREATE_ACLS: Versions(1, 3),
    API.DELETE_ACLS: Versions(1, 3),
    API.DESCRIBE_CONFIGS: Versions(1, 4),
    API.ALTER_CONFIGS: Versions(0, 2),
    API.DESCRIBE_LOG_DIRS: Versions(1, 4),
    API.CREATE_PARTITIONS: Versions(0, 3),
    API.DELETE_GROUPS: Versions(0, 2),
    API.ELECT_LEADERS: Versions(0, 2),
    API.INCREMENTAL_ALTER_CONFIGS: Versions(0, 1),
    API.LIST_PARTITION_REASSIGNMENTS: Versions(0, 0),
    API.OFFSET_DELETE: Versions(0, 0),
    API.DESCRIBE_CLIENT_QUOTAS: Versions(0, 1),
    API.DESCRIBE_CLUSTER: Versions(0, 2),
    API.DESCRIBE_PRODUCERS: Versions(0, 0),
    API.CONSUMER_GROUP_HEARTBEAT: Versions(0, 1),
    API.LIST_CONFIG_RESOURCES: Versions(0, 1),
    API.DESCRIBE_TOPIC_PARTITIONS: Versions(0, 0),
}
PRODUCE_LOWEST = 3
"""Lowest accepted version of Produce: lower ones have record formats from before Kafka 0.11. Requests in lower versions
get UNSUPPORTED_VERSION. These versions are advertised nevertheless: librdkafka derives the broker's features from them
(KAFKA-18659)."""


def is_advertised(api: int, version: int) -> bool:
    """Whether a version of an API is advertised."""
    versions = _BY_KEY.get(api)
    return versions is not None and version in versions


def name_of(api: int) -> str:
    """Return the name of an API as Kafka writes it, ``ListOffsets``; for an unknown key, ``API`` and the key."""
    return _NAMES.get(api, f"API {api}")


def document() -> str:
    """Return the table of advertised APIs in Markdown."""
    rows = [f"| {int(a)} | {name_of(a)} | {_span(v)} | {_REMARKS.get(a, '')} |" for a, v in ADVERTISED.items()]
    return "\n".join([_HEAD, _TABLE_HEAD, *rows]) + "\n"


def _span(versions: Versions) -> str:
    return str(versions.lowest) if versions.lowest == versions.highest else f"{versions.lowest}-{versions.highest}"


_BY_KEY: Mapping[int, Versions] = {int(api): versions for api, versions in ADVERTISED.items()}
_NAMES: Mapping[int, str] = {int(api): "".join(word.capitalize() for word in api.name.split("_")) for api in API}
_REMARKS: Mapping[API, str] = {
    API.PRODUCE: f"below {PRODUCE_LOWEST} UNSUPPORTED_VERSION: record formats from before Kafka 0.11 are rejected",
    API.FIND_COORDINATOR: "groups; for transactions TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    API.CREATE_TOPICS: "assignments set the number of replicas, the cluster places them",
    API.INIT_PRODUCER_ID: "idempotent producers; with a transactional id INVALID_REQUEST",
    API.DESCRIBE_ACLS: "SECURITY_DISABLED",
    API.CREATE_ACLS: "SECURITY_DISABLED",
    API.DELETE_ACLS: "SECURITY_DISABLED",
    API.ELECT_LEADERS: "ELECTION_NOT_NEEDED: every partition gets a leader without an election",
    API.LIST_PARTITION_REASSIGNMENTS: "always none: partitions move in one step",
    API.DESCRIBE_CLIENT_QUOTAS: "none: no client is throttled",
    API.CONSUMER_GROUP_HEARTBEAT: "UNSUPPORTED_VERSION, as in a Kafka without the new group protocol: clients stop",
}
_HEAD = """\
# Kafka's APIs

The APIs and versions, both ends included, that a broker supports on its Kafka listener: the reply to `ApiVersions`.
A request in another API or version closes the connection, as in Kafka, with a line in the broker's log; clients request
the versions first and send no such requests. `python -m seaweedmq.kafka.wire.versions` writes this file, and a test
compares it.
"""
_TABLE_HEAD = "| key | API | versions | remark |\n|---|---|---|---|"


if __name__ == "__main__":
    DOCUMENT.write_text(document())
