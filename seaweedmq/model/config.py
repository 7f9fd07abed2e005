"""Every setting of a broker with its type, default and range. Units end the names.

``BrokerConfig`` declares each setting once. Its checks, the reader of ``--config``, ``deploy/SETTINGS.md`` and
``deploy/broker.toml`` come from there.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import PARTITIONS_MAX, check_name

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
HOUR_S = 3_600
DAY_S = 24 * HOUR_S
WEEK_S = 7 * DAY_S
YEAR_S = 365 * DAY_S
US_PER_S = 1_000_000
STREAM_IN_FLIGHT_FRAMES_MAX = 1_024
"""Highest ``stream_in_flight_frames_max``. A broker remembers as many acknowledgements of each producer."""
PRODUCERS_MAX = 100_000
"""Highest ``producers_max``. It keeps the producer state in a log file far below its limit of 64 MiB."""
DELIVERY_TIMEOUT_S_MAX = 600.0
"""Longest ``delivery_timeout_s`` of a client, in seconds. A client repeats no frame after it."""
PRODUCER_IDLE_S_MAX = HOUR_S
"""Longest ``producer_idle_s``, in seconds."""
KAFKA_UNPACKED_BYTES_MAX = 64 * MIB
"""Highest ``kafka_unpacked_bytes_max``. Readers that know no settings also unpack the batches in files."""
KAFKA_BYTES_MIN = 1 * MIB
"""Lowest limit in bytes of Kafka clients, which send and fetch up to 1 MiB at a time by default."""
INT32_MAX = 2**31 - 1
"""Highest value of 32 signed bits: the length of a Kafka request, and of most Kafka settings that show ours."""

N = TypeVar("N", int, float)


def _number(default: N, least: float, most: float, *, is_uniform: bool = False, outlasts_clients: bool = False) -> N:
    """Declare a setting that is a number, see :class:`Setting`."""
    return field(
        default=default,
        metadata={"least": least, "most": most, "is_uniform": is_uniform, "outlasts_clients": outlasts_clients},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker process. The defaults suit a small machine; ``--config FILE`` (TOML) changes them."""

    lease_ttl_s: float = _number(5.0, 1, HOUR_S)
    """Time to live of the etcd lease of the broker and of the leader lock; the broker renews it every half."""
    memory_bytes_max: int = _number(1024 * MIB, 64 * MIB, TIB)
    """Limit on the memory of the whole process; give each broker of a machine its part."""
    cache_age_s: float = _number(300.0, 0.1, WEEK_S)
    """Longest time that written frames stay in memory for subscribers that read a little later. The broker drops them
    earlier if it needs the memory. Without this limit, a broker with little traffic would grow for hours."""
    segment_buffer_bytes_max: int = _number(64 * MIB, KIB, TIB)
    """Accepted bytes of one segment that are not yet written. Beyond it the broker stops reading from publishers."""
    frame_bytes_max: int = _number(16 * MIB, KIB, GIB)
    """Largest frame, and so the largest record."""
    stream_in_flight_bytes_max: int = _number(32 * MIB, KIB, GIB)
    """Unacknowledged bytes per publish stream."""
    stream_in_flight_frames_max: int = _number(16, 1, STREAM_IN_FLIGHT_FRAMES_MAX)
    """Unacknowledged frames per publish stream. The broker remembers as many acknowledgements of each producer."""
    read_chunk_bytes: int = _number(1 * MIB, KIB, GIB)
    """Approximate size of the chunks in which the broker reads files and sends frames to subscribers."""
    replica_timeout_s: float = _number(3.0, 0.1, HOUR_S)
    """Longest time without progress of a follower; then the segment continues without it. A follower that makes
    progress in other segments has five times as long."""
    log_roll_bytes: int = _number(128 * MIB, KIB, TIB)
    """Size at which the broker seals a log file. A sealed log file becomes a table."""
    log_roll_age_s: float = _number(60.0, 0.1, WEEK_S)
    """Age at which the broker seals a log file that is not empty."""
    partition_roll_age_s: float = _number(600.0, 0.1, WEEK_S)
    """``log_roll_age_s`` for topics with partitions. There may be thousands of partitions: at one minute, a hundred
    with little traffic would make 144,000 files a day."""
    flush_interval_s: float = _number(1.0, 0.01, HOUR_S)
    """Longest time from written to flushed in topics with durability ``replicated``."""
    log_grace_s: float = _number(600.0, 0.1, YEAR_S)
    """Time that a log file stays after its table is complete, and an expired file after retention chose it."""
    table_grace_s: float = _number(3_600.0, 0.1, YEAR_S)
    """Time that a table keeps its retained link, and takes space, after it left the live tables: expired, deleted
    manually or replaced. A running query listed its files once and opens each of them later."""
    table_row_group_bytes: int = _number(16 * MIB, KIB, GIB)
    """Size of the row groups of a table."""
    conversion_backlog_bytes_max: int = _number(4096 * MIB, 1, TIB)
    """Largest backlog of sealed log files that a busy broker leaves unconverted."""
    conversion_delay_s_max: float = _number(300.0, 0.1, WEEK_S)
    """Longest time that a busy broker leaves sealed log files unconverted."""
    maintenance_interval_s: float = _number(10.0, 0.1, DAY_S)
    """Time between two checks of the files for conversion, retention and deletion."""
    producer_retention_s: float = _number(86_400.0, 0, YEAR_S, is_uniform=True, outlasts_clients=True)
    """Time that etcd keeps the producer state of a sealed segment. It must exceed every publisher's
    ``delivery_timeout_s``: a publisher that returns later cannot learn whether its last records were committed."""
    segment_retention_s: float = _number(86_400.0, 0, YEAR_S, is_uniform=True, outlasts_clients=True)
    """Time until a sealed segment without records is pruned, also if retention removed its records. It must exceed
    every publisher's ``delivery_timeout_s``."""
    load_report_interval_s: float = _number(1.0, 0.1, HOUR_S, is_uniform=True)
    """Time between two load reports to the leader."""
    load_short_s: float = _number(2.0, 0.1, HOUR_S, is_uniform=True)
    """Time constant of the short averages, which decide splits and, with the long ones, merges."""
    load_long_s: float = _number(20.0, 0.1, HOUR_S, is_uniform=True)
    """Time constant of the long averages, which decide merges together with the short ones."""
    segment_target_bytes_per_s: float = _number(64_000_000.0, 1, TIB, is_uniform=True)
    """Target rate of one segment of a topic with ``scaling=auto`` that sets no target itself: about a tenth of the rate
    of one broker process. The leader splits a segment at twice the target and merges neighbors far below it."""
    segment_target_records_per_s: float = _number(1_000_000.0, 1, 1_000_000_000, is_uniform=True)
    """Target rate of records of one segment, as ``segment_target_bytes_per_s``."""
    balance_interval_s: float = _number(1.0, 0.1, HOUR_S, is_uniform=True)
    """Time between two checks of the leader for splits, merges and moves."""
    split_after_s: float = _number(2.0, 0.1, DAY_S, is_uniform=True)
    """Lowest age of a segment to be split. The averages of a younger one are not its own yet."""
    merge_after_s: float = _number(60.0, 0.1, DAY_S, is_uniform=True)
    """Lowest age of a segment to be merged, or moved for balance."""
    changes_at_once_max: int = _number(8, 1, 10_000, is_uniform=True)
    """Concurrent splits, merges and moves for balance in the whole cluster."""
    group_session_timeout_s: float = _number(6.0, 0.1, HOUR_S, is_uniform=True)
    """Time after which a member whose stream broke and did not return leaves its group. Below 5 s the timeout is half
    of this value and 2.5 s more: a member may take that long to detect that its stream broke."""
    group_revoke_timeout_s: float = _number(300.0, 0.1, DAY_S, is_uniform=True)
    """Time after which a member that does not release a revoked segment loses it. The handlers of a member may take
    minutes."""
    group_rebalance_delay_s: float = _number(0.2, 0.01, 60, is_uniform=True)
    """Time that a group collects joining and leaving members before one rebalance."""
    group_members_max: int = _number(1_000, 1, INT32_MAX, is_uniform=True)
    """Members of one group."""
    groups_max: int = _number(10_000, 1, INT32_MAX, is_uniform=True)
    """Groups of the cluster."""
    producers_per_segment_max: int = _number(1_000, 1, PRODUCERS_MAX)
    """Producers of one segment that a broker remembers for duplicate detection although they can repeat nothing. Beyond
    it the broker forgets the longest idle, but no producer whose stream is open or ended within ``producer_idle_s``."""
    producer_idle_s: float = _number(900.0, 0, PRODUCER_IDLE_S_MAX, outlasts_clients=True)
    """Time that a producer may repeat frames after the end of its stream, or after the last frame of a Kafka producer.
    It must exceed every client's ``delivery_timeout_s``, which is at most 600 s."""
    producers_max: int = _number(100_000, 1, PRODUCERS_MAX)
    """Producers that a broker remembers over all segments; it rejects a new one beyond it. Each takes about 1 KB, and
    17 bytes for each frame in flight above 16. The limit is lower where that exceeds an eighth of
    ``memory_bytes_max``."""
    storage_free_bytes_min: int = _number(256 * MIB, 1, TIB)
    """Free space of the storage below which the broker rejects records, or a twentieth of a small storage. Reads and
    deletions continue. Freeing space needs some itself: the broker writes tables before it deletes their log files."""
    open_segments_max: int = _number(4_000, 1, INT32_MAX, is_uniform=True)
    """Open segments of one broker, as primary or follower. It limits creation and splits. The replacement of a lost,
    drained or moved segment goes to another broker if possible, and is served in any case."""
    file_readers_max: int = _number(1_000, 1, INT32_MAX)
    """Concurrent readers of files; further ones wait. The limit is lower if memory is short, and at most a sixteenth of
    the files that the broker may open."""
    streams_max: int = _number(10_000, 1, INT32_MAX)
    """Concurrent streams. The limit is lower if memory is short: a stream takes 180 KiB."""
    uploads_max: int = _number(16, 1, 10_000)
    """Concurrent uploads of payloads by reference through this broker; it rejects further ones, and clients retry."""
    payload_bytes_max: int = _number(64 * GIB, 1, TIB)
    """Largest payload by reference."""
    connections_max: int = _number(10_000, 1, INT32_MAX)
    """Connections of native clients and other brokers; the broker closes further ones at once. This setting,
    ``kafka_connections_max`` and ``open_segments_max`` are each at most a quarter of the files that the broker may
    open."""
    rpc_timeout_s: float = _number(10.0, 0.1, HOUR_S)
    """Deadline of one unary call between brokers."""
    kafka_listen: str = ""
    """``HOST:PORT`` where the broker listens for Kafka clients; "" disables it. It needs the extra ``kafka``."""
    kafka_advertise: str = ""
    """``HOST:PORT`` that Kafka clients dial; "" for ``kafka_listen``."""
    kafka_namespace: str = "kafka"
    """Namespace whose topics Kafka clients see."""
    kafka_request_bytes_max: int = _number(100 * MIB, KAFKA_BYTES_MIN, INT32_MAX)
    """Size of one Kafka request; a larger one ends its connection."""
    kafka_in_flight_bytes_max: int = _number(64 * MIB, KAFKA_BYTES_MIN, INT32_MAX)
    """Bytes of unanswered requests and unsent replies over all Kafka connections. A quarter is guaranteed to
    connections, up to 16 KiB each. A quarter is reserved for the connection that has waited longest. A connection may
    hold half of the free rest. Beyond the limit the broker reads no more requests."""
    kafka_fetch_bytes_max: int = _number(64 * MIB, KAFKA_BYTES_MIN, INT32_MAX)
    """Bytes of all unsent replies to Fetch. The broker makes smaller replies when little is left."""
    kafka_requests_per_connection_max: int = _number(100, 1, INT32_MAX)
    """Unanswered requests of one Kafka connection."""
    kafka_connections_max: int = _number(10_000, 1, INT32_MAX)
    """Kafka connections, at most a quarter of the files that the broker may open."""
    kafka_connection_idle_s: float = _number(600.0, 0.01, WEEK_S)
    """Time without requests after which the broker closes a Kafka connection."""
    kafka_request_read_s: float = _number(30.0, 0.01, WEEK_S)
    """Longest time without progress while the broker reads a request or a client reads its replies."""
    kafka_unpacked_bytes_max: int = _number(64 * MIB, KAFKA_BYTES_MIN, KAFKA_UNPACKED_BYTES_MAX)
    """Unpacked size of a compressed batch."""
    kafka_cursors_max: int = _number(64, 1, INT32_MAX)
    """Open readers of files that the broker keeps for the next Fetch at their position."""
    kafka_groups_bytes_max: int = _number(64 * MIB, KAFKA_BYTES_MIN, INT32_MAX)
    """Bytes of members and offsets of the Kafka groups that this broker coordinates; it rejects requests beyond it."""
    kafka_reencode_cache_bytes_max: int = _number(32 * MIB, KAFKA_BYTES_MIN, INT32_MAX)
    """Bytes of cached batches, re-encoded for Kafka clients from records of other clients."""
    kafka_partitions_default: int = _number(4, 1, PARTITIONS_MAX)
    """Partitions of a topic that is created without a number of them."""
    kafka_auto_create: bool = True
    """Whether the broker creates a topic that a Kafka client requests."""
    kafka_auto_create_per_minute_max: int = _number(100, 1, INT32_MAX)
    """Topics that a broker creates per minute on request of the Kafka clients of one address. It does not limit
    CreateTopics."""
    kafka_internal_partitions: int = _number(8, 1, PARTITIONS_MAX)
    """Partitions of the internal topic of Kafka groups; fixed once that topic exists."""

    def __post_init__(self) -> None:
        for setting in SETTINGS.values():
            setting.check(getattr(self, setting.name))
        check_name("kafka_namespace", self.kafka_namespace)
        if self.kafka_advertise and not self.kafka_listen:
            raise InvalidArgument("kafka_advertise needs kafka_listen: set both or neither")


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting of ``BrokerConfig``."""

    name: str
    type: type[bool | int | float | str]
    default: bool | int | float | str
    least: float = -math.inf
    """Lowest value of a number. Without a range a wrong value would fail requests, not the start."""
    most: float = math.inf
    """Highest value of a number."""
    is_uniform: bool = False
    """Whether all brokers of a cluster need the same value."""
    outlasts_clients: bool = False
    """Whether operators must set more than ``DELIVERY_TIMEOUT_S_MAX``: how long brokers remember what publishers may
    still repeat or query. Tests with faster clients set less."""

    @property
    def is_number(self) -> bool:
        """Whether the value is a number."""
        return self.type in (int, float)

    @property
    def type_rule(self) -> str:
        """The values of a configuration file that have the type."""
        return {bool: "true or false", str: "a string", int: "a whole number above 0"}.get(
            self.type, "a number above 0"
        )

    def has_type_of(self, value: object) -> bool:
        """Return whether a value of a configuration file has the type. Numbers are above 0."""
        if not self.is_number:
            return isinstance(value, self.type)
        kinds = (int,) if self.type is int else (int, float)
        return isinstance(value, kinds) and not isinstance(value, bool) and value > 0

    def check(self, value: Any) -> None:
        """Raise InvalidArgument if a number is not within its range."""
        if self.is_number and not self.least <= value <= self.most:
            raise InvalidArgument(f"{self.name} is {value:,}: give from {self.least:,} to {self.most:,}")


SETTINGS: Mapping[str, Setting] = {
    declared.name: Setting(declared.name, declared.type, declared.default, **declared.metadata)  # type: ignore[arg-type]
    for declared in fields(BrokerConfig)
}
"""Name -> setting, in the order of their declaration."""
