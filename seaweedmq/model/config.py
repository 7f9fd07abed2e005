"""Every limit and interval of a broker. Units end the names."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import PARTITIONS_MAX, check_name

KIB = 1024
MIB = 1024 * KIB
US_PER_S = 1_000_000
STREAM_IN_FLIGHT_FRAMES_MAX = 1_024
"""Highest ``stream_in_flight_frames_max``. A broker remembers as many acknowledgements of each producer."""
PRODUCERS_MAX = 100_000
"""Highest ``producers_max``. It keeps the producer state in a log file far below its limit of 64 MiB."""
DELIVERY_TIMEOUT_S_MAX = 600.0
"""Longest ``delivery_timeout_s`` of a client, in seconds. A client repeats no frame after it."""
PRODUCER_IDLE_S_MAX = 3_600.0
"""Longest ``producer_idle_s``, in seconds."""
KAFKA_UNPACKED_BYTES_MAX = 64 * MIB
"""Highest ``kafka_unpacked_bytes_max``. Readers that know no settings also unpack the batches in files."""
KAFKA_BYTES_MIN = 1 * MIB
"""Lowest limit in bytes of Kafka clients, which send and fetch up to 1 MiB at a time by default."""
INT32_MAX = 2**31 - 1
"""Highest value of 32 signed bits: the length of a Kafka request, and of most Kafka settings that show ours."""
KAFKA_WAIT_S_MAX = 604_800
"""Longest wait of a Kafka connection: one week, in seconds. A longer one is an error in a unit."""

BOUNDS: Mapping[str, tuple[float, float]] = {
    "stream_in_flight_frames_max": (1, STREAM_IN_FLIGHT_FRAMES_MAX),
    "producers_max": (1, PRODUCERS_MAX),
    "producers_per_segment_max": (1, PRODUCERS_MAX),
    "file_readers_max": (1, INT32_MAX),
    "kafka_request_bytes_max": (KAFKA_BYTES_MIN, INT32_MAX),
    "kafka_in_flight_bytes_max": (KAFKA_BYTES_MIN, INT32_MAX),
    "kafka_fetch_bytes_max": (KAFKA_BYTES_MIN, INT32_MAX),
    "kafka_requests_per_connection_max": (1, INT32_MAX),
    "kafka_connections_max": (1, INT32_MAX),
    "kafka_connection_idle_s": (0.01, KAFKA_WAIT_S_MAX),
    "kafka_request_read_s": (0.01, KAFKA_WAIT_S_MAX),
    "kafka_unpacked_bytes_max": (KAFKA_BYTES_MIN, KAFKA_UNPACKED_BYTES_MAX),
    "kafka_cursors_max": (1, INT32_MAX),
    "kafka_groups_bytes_max": (KAFKA_BYTES_MIN, INT32_MAX),
    "kafka_reencode_cache_bytes_max": (KAFKA_BYTES_MIN, INT32_MAX),
    "kafka_partitions_default": (1, PARTITIONS_MAX),
    "kafka_auto_create_per_minute_max": (1, INT32_MAX),
    "kafka_internal_partitions": (1, PARTITIONS_MAX),
}
"""Setting -> its lowest and highest value. Without these bounds a wrong value would fail requests, not the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker process.

    The defaults suit a small machine; ``--config FILE`` (TOML) changes them.
    """

    lease_ttl_s: float = 5.0
    """Time to live of the etcd lease of the broker and of the leader lock; the broker renews it every half."""
    memory_bytes_max: int = 1024 * MIB
    """Limit on the memory of the whole process. ``broker.memory`` divides the part that the runtime leaves."""
    cache_age_s: float = 300.0
    """Longest time that written frames stay in memory for subscribers that read a little later. The broker drops them
    earlier if it needs the memory. Without this limit, a broker with little traffic would grow for hours.
    """
    segment_buffer_bytes_max: int = 64 * MIB
    """Accepted bytes of one segment that are not yet written. Beyond it the broker stops reading from publishers."""
    frame_bytes_max: int = 16 * MIB
    """Size of one frame."""
    stream_in_flight_bytes_max: int = 32 * MIB
    """Unacknowledged bytes per publish stream."""
    stream_in_flight_frames_max: int = 16
    """Unacknowledged frames per publish stream, 1 to 1,024. The broker remembers as many acknowledgements of each
    producer.
    """
    read_chunk_bytes: int = 1 * MIB
    """Approximate size of the chunks in which the broker reads files and sends frames to subscribers."""
    replica_timeout_s: float = 3.0
    """Longest time without progress of a follower; then the segment continues without it. A follower that makes
    progress in other segments has five times as long.
    """
    log_roll_bytes: int = 128 * MIB
    """Size at which the broker seals a log file. A sealed log file becomes a table."""
    log_roll_age_s: float = 60.0
    """Age at which the broker seals a log file that is not empty."""
    partition_roll_age_s: float = 600.0
    """``log_roll_age_s`` for topics with partitions. There may be thousands of partitions: at one minute, a hundred
    with little traffic would make 144,000 files a day.
    """
    flush_interval_s: float = 1.0
    """Longest time from written to flushed in topics with durability ``replicated``."""
    log_grace_s: float = 600.0
    """Time that a log file stays after its table is complete, and an expired file after retention chose it."""
    table_grace_s: float = 3_600.0
    """Time that a table keeps its retained link, and takes space, after it left the live tables: expired, deleted
    manually or replaced. A running query listed its files once and opens each of them later.
    """
    table_row_group_bytes: int = 16 * MIB
    """Size of the row groups of a table."""
    conversion_backlog_bytes_max: int = 4096 * MIB
    """Largest backlog of sealed log files that a busy broker leaves unconverted."""
    conversion_delay_s_max: float = 300.0
    """Longest time that a busy broker leaves sealed log files unconverted."""
    maintenance_interval_s: float = 10.0
    """Time between two checks of the files for conversion, retention and deletion."""
    producer_retention_s: float = 86_400.0
    """Time that etcd keeps the producer state of a sealed segment. It must exceed every publisher's
    ``delivery_timeout_s``: a publisher that returns later cannot learn whether its last records were committed.
    """
    segment_retention_s: float = 86_400.0
    """Time until a sealed segment without records is pruned, also if retention removed its records. It must exceed
    every publisher's ``delivery_timeout_s``.
    """
    load_report_interval_s: float = 1.0
    """Time between two load reports to the leader."""
    load_short_s: float = 2.0
    """Time constant of the short averages, which decide splits and, with the long ones, merges."""
    load_long_s: float = 20.0
    """Time constant of the long averages, which decide merges together with the short ones."""
    segment_target_bytes_per_s: float = 64_000_000.0
    """Target rate of one segment of a topic with ``scaling=auto`` that sets no target itself: about a tenth of the rate
    of one broker process. The leader splits a segment at twice the target and merges neighbors far below it.
    """
    segment_target_records_per_s: float = 1_000_000.0
    """Target rate of records of one segment, as ``segment_target_bytes_per_s``."""
    balance_interval_s: float = 1.0
    """Time between two checks of the leader for splits, merges and moves."""
    split_after_s: float = 2.0
    """Lowest age of a segment to be split. The averages of a younger one are not its own yet."""
    merge_after_s: float = 60.0
    """Lowest age of a segment to be merged, or moved for balance."""
    changes_at_once_max: int = 8
    """Concurrent splits, merges and moves for balance in the whole cluster."""
    group_session_timeout_s: float = 6.0
    """Time after which a member whose stream broke and did not return leaves its group. Below 5 s the timeout is half
    of this value and 2.5 s more: a member may take that long to detect that its stream broke.
    """
    group_revoke_timeout_s: float = 300.0
    """Time after which a member that does not release a revoked segment loses it. The handlers of a member may take
    minutes.
    """
    group_rebalance_delay_s: float = 0.2
    """Time that a group collects joining and leaving members before one rebalance."""
    group_members_max: int = 1_000
    """Members of one group."""
    groups_max: int = 10_000
    """Groups of the cluster."""
    producers_per_segment_max: int = 1_000
    """Producers of one segment that a broker remembers for duplicate detection although they can repeat nothing. Beyond
    it the broker forgets the longest idle, but no producer whose stream is open or ended within ``producer_idle_s``.
    """
    producer_idle_s: float = 900.0
    """Time that a producer may repeat frames after the end of its stream, or after the last frame of a Kafka producer.
    It must exceed every client's ``delivery_timeout_s``, which is at most 600 s. At most 3,600 s.
    """
    producers_max: int = 100_000
    """Producers that a broker remembers over all segments, at most 100,000; it rejects a new one beyond it. Each takes
    about 1 KB, and 17 bytes for each frame in flight above 16. The limit is lower where that exceeds an eighth of
    ``memory_bytes_max``.
    """
    storage_free_bytes_min: int = 256 * MIB
    """Free space of the storage below which the broker rejects records, or a twentieth of a small storage. Reads and
    deletions continue. Freeing space needs some itself: the broker writes tables before it deletes their log files.
    """
    open_segments_max: int = 4_000
    """Open segments of one broker, as primary or follower; the same on all brokers. It limits creation and splits. The
    replacement of a lost, drained or moved segment goes to another broker if possible, and is served in any case.
    """
    file_readers_max: int = 1_000
    """Concurrent readers of files; further ones wait. The limit is lower if memory is short, and at most a sixteenth of
    the files that the broker may open.
    """
    streams_max: int = 10_000
    """Concurrent streams. The limit is lower if memory is short: a stream takes 180 KiB."""
    connections_max: int = 10_000
    """Connections of native clients and other brokers; the broker closes further ones at once. This setting,
    ``kafka_connections_max`` and ``open_segments_max`` are each at most a quarter of the files that the broker may
    open.
    """
    rpc_timeout_s: float = 10.0
    """Deadline of one unary call between brokers."""
    kafka_listen: str = ""
    """``HOST:PORT`` where the broker listens for Kafka clients; "" disables it. See ``--kafka-listen``."""
    kafka_advertise: str = ""
    """``HOST:PORT`` that Kafka clients dial; "" for ``kafka_listen``. See ``--kafka-advertise``."""
    kafka_namespace: str = "kafka"
    """Namespace whose topics Kafka clients see."""
    kafka_request_bytes_max: int = 100 * MIB
    """Size of one Kafka request; a larger one ends its connection. This and the other ``bytes_max`` settings of Kafka
    are at least 1 MiB.
    """
    kafka_in_flight_bytes_max: int = 64 * MIB
    """Bytes of unanswered requests and unsent replies over all Kafka connections. A quarter is guaranteed to
    connections, up to 16 KiB each. A quarter is reserved for the connection that has waited longest. A connection may
    hold half of the free rest. Beyond the limit the broker reads no more requests.
    """
    kafka_fetch_bytes_max: int = 64 * MIB
    """Bytes of all unsent replies to Fetch. The broker makes smaller replies when little is left."""
    kafka_requests_per_connection_max: int = 100
    """Unanswered requests of one Kafka connection."""
    kafka_connections_max: int = 10_000
    """Kafka connections, at most a quarter of the files that the broker may open."""
    kafka_connection_idle_s: float = 600.0
    """Time without requests after which the broker closes a Kafka connection."""
    kafka_request_read_s: float = 30.0
    """Longest time without progress while the broker reads a request or a client reads its replies."""
    kafka_unpacked_bytes_max: int = 64 * MIB
    """Unpacked size of a compressed batch; at most 64 MiB."""
    kafka_cursors_max: int = 64
    """Open readers of files that the broker keeps for the next Fetch at their position."""
    kafka_groups_bytes_max: int = 64 * MIB
    """Bytes of members and offsets of the Kafka groups that this broker coordinates; it rejects requests beyond it."""
    kafka_reencode_cache_bytes_max: int = 32 * MIB
    """Bytes of cached batches, re-encoded for Kafka clients from records of other clients."""
    kafka_partitions_default: int = 4
    """Partitions of a topic that is created without a number of them; 1 to 4,096."""
    kafka_auto_create: bool = True
    """Whether the broker creates a topic that a Kafka client requests."""
    kafka_auto_create_per_minute_max: int = 100
    """Topics that a broker creates per minute on request of the Kafka clients of one address; at least 1. It does not
    limit CreateTopics.
    """
    kafka_internal_partitions: int = 8
    """Partitions of the internal topic of Kafka groups; fixed once that topic exists."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidArgument(f"{name} is {value:,}: give from {least:,} to {most:,}")
        check_name("kafka_namespace", self.kafka_namespace)
        if self.kafka_advertise and not self.kafka_listen:
            raise InvalidArgument("kafka_advertise needs kafka_listen: set both or neither")
