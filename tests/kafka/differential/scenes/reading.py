"""Fields of requests that read records."""

from typing import Any

MIB = 1 << 20


def wanted(*parts: tuple[str, int, int], epoch: int = -1, bytes_max: int = MIB, **more: Any) -> dict[str, Any]:
    """Return the fields of a Fetch: topic, partition and offset of each."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for name, partition, offset in parts:
        topics.setdefault(name, []).append(
            {
                "partition": partition, "current_leader_epoch": epoch, "fetch_offset": offset, "last_fetched_epoch": -1,
                "log_start_offset": -1, "partition_max_bytes": bytes_max,
            }
        )  # fmt: skip
    return {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 * MIB, "isolation_level": 0,
        "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": name, "partitions": asked} for name, asked in topics.items()], "forgotten_topics_data": [],
        "rack_id": "",
    } | more  # fmt: skip
