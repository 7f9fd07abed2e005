"""Every limit and interval of a broker, in one place. Units last in the names."""

from collections.abc import Mapping
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.topic import PARTITIONS_MAX, check_name

KIB = 1024
MIB = 1024 * KIB
US_PER_S = 1_000_000
STREAM_IN_FLIGHT_FRAMES_MAX = 1_024
"""Highest ``stream_in_flight_frames_max``: so many acknowledgements are remembered of each producer."""
PRODUCERS_MAX = 100_000
"""Highest ``producers_max``. What a log file says of its producers stays far below the 64 MiB it may take."""
DELIVERY_TIMEOUT_S_MAX = 600.0
"""Longest ``delivery_timeout_s`` of a client: after it no frame is repeated."""
PRODUCER_IDLE_S_MAX = 3_600.0
KAFKA_UNPACKED_BYTES_MAX = 64 * MIB
"""Highest ``kafka_unpacked_bytes_max``: what is in files is unpacked as well, and by readers that know no settings."""
KAFKA_BYTES_MIN = 1 * MIB
"""Kafka's clients send and ask for up to so much at a time unless they are told otherwise."""
INT32_MAX = 2**31 - 1
"""A request says its length in so many bits, and so do most of Kafka's own settings, as which ours are shown."""
KAFKA_WAIT_S_MAX = 604_800
"""A week: what is to wait for ever is an error in a unit."""

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
"""Lowest and highest of settings that would else be found wrong when somebody's request fails, and not at the start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """Settings of one broker process. The defaults suit a small machine; ``--config FILE`` (TOML) changes them."""

    lease_ttl_s: float = 5.0
    """etcd lease of the broker and of the leader lock; renewed every half."""
    memory_bytes_max: int = 1024 * MIB
    """Bound on the whole process; ``broker.memory`` shares out what the runtime leaves of it."""
    cache_age_s: float = 300.0
    """How long frames that are in files stay in memory for those who read a little later. They give way before if
    memory is wanted; without an age a broker that trickles would grow for hours until it is."""
    segment_buffer_bytes_max: int = 64 * MIB
    """Accepted and not yet written, per segment; beyond it the broker stops reading from publishers."""
    frame_bytes_max: int = 16 * MIB
    stream_in_flight_bytes_max: int = 32 * MIB
    stream_in_flight_frames_max: int = 16
    """Of one publisher, not acknowledged; from 1 to 1,024. The same number is remembered of each producer."""
    read_chunk_bytes: int = 1 * MIB
    """Frames are read from files and sent to subscribers in runs of about this size."""
    replica_timeout_s: float = 3.0
    """A follower that makes no progress for so long is given up, and the segment continues without it. One that makes
    progress in other segments has five times as long."""
    log_roll_bytes: int = 128 * MIB
    """A log file is sealed when it reaches this size ..."""
    log_roll_age_s: float = 60.0
    """... or this age, if it holds anything; sealed log files become Parquet."""
    partition_roll_age_s: float = 600.0
    """The same in topics with partitions, of which there may be thousands: at a minute a hundred that trickle would
    make 144,000 files a day."""
    flush_interval_s: float = 1.0
    """Longest time from written to fsynced for ``replicated`` topics."""
    log_grace_s: float = 600.0
    """How long a log file stays after its Parquet file is complete, and an expired file after retention chose it."""
    table_grace_s: float = 3_600.0
    """How long a table that does not count any more, be it expired, deleted by hand or replaced, stays under its second
    name and takes space: a query that has begun lists files once, and reads each when its turn comes."""
    table_row_group_bytes: int = 16 * MIB
    conversion_backlog_bytes_max: int = 4096 * MIB
    """While it has much to do a broker leaves sealed log files as they are, up to so much of them ..."""
    conversion_delay_s_max: float = 300.0
    """... and for so long."""
    maintenance_interval_s: float = 10.0
    """How often files are looked over for conversion, retention and deletion."""
    producer_retention_s: float = 86_400.0
    """How long etcd keeps what producers had stored in a segment after it was sealed; longer than any publisher's
    ``delivery_timeout_s``, since one that comes back later is not told what became of its last records."""
    segment_retention_s: float = 86_400.0
    """How long a sealed segment without records, be it that retention removed them, is remembered; longer than any
    publisher's ``delivery_timeout_s``, too."""
    load_report_interval_s: float = 1.0
    load_short_s: float = 2.0
    """Time constant of the averages that splits are decided by ..."""
    load_long_s: float = 20.0
    """... and of those that, with the short ones, merges are decided by."""
    segment_target_bytes_per_s: float = 64_000_000.0
    """What one segment of a topic with ``scaling=auto`` should carry, unless the topic says otherwise: about a tenth of
    what one broker process moves. Twice as much is split, much less is merged with its neighbour."""
    segment_target_records_per_s: float = 1_000_000.0
    balance_interval_s: float = 1.0
    """How often the leader considers splits, merges and moves."""
    split_after_s: float = 2.0
    """A segment younger than this is not split: its averages are not its own yet."""
    merge_after_s: float = 60.0
    """A segment younger than this is not merged, nor moved for balance."""
    changes_at_once_max: int = 8
    """Splits, merges and moves for balance that are under way at a time, in the whole cluster."""
    group_session_timeout_s: float = 6.0
    """A member whose stream broke and did not come back for so long is out of its group. Below 5 s it is half of it and
    2.5 s more: it may take a member so long to see that its stream is gone."""
    group_revoke_timeout_s: float = 300.0
    """A member that does not let go of a segment for so long loses it: its handlers may take minutes."""
    group_rebalance_delay_s: float = 0.2
    """Members that come or go within this time are shared out to in one go."""
    group_members_max: int = 1_000
    groups_max: int = 10_000
    producers_per_segment_max: int = 1_000
    """Producers remembered for duplicate detection even if they can not repeat anything any more. Beyond it they are
    forgotten, but never while their stream is open or was within ``producer_idle_s``."""
    producer_idle_s: float = 900.0
    """How long after the end of its stream, or its last frame if it is one of Kafka's, a producer may repeat something:
    longer than any client's ``delivery_timeout_s``, which is at most 600 s, and at most 3,600 s."""
    producers_max: int = 100_000
    """Producers remembered over all segments; a new one beyond it is refused. Each takes about 1 KB, and 17 bytes more
    for each frame that may be in flight above 16; the limit is lower where that is more than an eighth of
    ``memory_bytes_max``. At most 100,000."""
    storage_free_bytes_min: int = 256 * MIB
    """While the storage has less free space, or less than a twentieth if it is small, records are refused; reads and
    deletions continue. What is written to free space, such as tables before their logs go, needs some itself."""
    open_segments_max: int = 4_000
    """Of one broker, as primary or follower; the same on all. Binds what makes more of them: creation and splits.
    What replaces a lost, drained or moved segment goes elsewhere if it can, and is served in any case."""
    file_readers_max: int = 1_000
    """Readers of files at a time, and no more than there is memory for; others wait. Lowered to a sixteenth of the
    files that the broker may open."""
    streams_max: int = 10_000
    """And no more than there is memory for, 180 KiB each."""
    connections_max: int = 10_000
    """Connections of native clients and other brokers; further ones are closed at once. This setting,
    ``kafka_connections_max`` and ``open_segments_max`` are each lowered to a quarter of the files that the broker may
    open."""
    rpc_timeout_s: float = 10.0
    """Deadline of one unary call between brokers."""
    kafka_listen: str = ""
    """``HOST:PORT`` where Kafka clients are listened for; "" for nowhere. As --kafka-listen."""
    kafka_advertise: str = ""
    """``HOST:PORT`` that Kafka clients are told to dial; "" for ``kafka_listen``. As --kafka-advertise."""
    kafka_namespace: str = "kafka"
    """Whose topics Kafka clients see."""
    kafka_request_bytes_max: int = 100 * MIB
    """A larger one ends its connection. This and the other ``bytes_max`` of Kafka's are 1 MiB at least."""
    kafka_in_flight_bytes_max: int = 64 * MIB
    """Bytes of requests that are read and not answered, and of replies that are not taken, over all connections. A
    quarter is guaranteed, up to 16 KiB for each connection, and a quarter reserved for the one that has waited longest;
    of the rest a connection may hold half of what is free. Beyond it no more are read."""
    kafka_fetch_bytes_max: int = 64 * MIB
    """Of all replies to Fetch together that are made and not sent. When there is little left, replies are smaller."""
    kafka_requests_per_connection_max: int = 100
    """Read and not answered."""
    kafka_connections_max: int = 10_000
    """And no more than a quarter of the files that the broker may open."""
    kafka_connection_idle_s: float = 600.0
    """A connection on which nothing is asked for so long is closed."""
    kafka_request_read_s: float = 30.0
    """Longest time in which nothing comes of a request that began, or a client takes nothing of its replies."""
    kafka_unpacked_bytes_max: int = 64 * MIB
    """What a compressed batch may be unpacked to; at most 64 MiB."""
    kafka_cursors_max: int = 64
    """Readers of files that are kept for who goes on reading there."""
    kafka_groups_bytes_max: int = 64 * MIB
    """Bytes of members and offsets of Kafka's groups that this broker coordinates; what is beyond is refused."""
    kafka_reencode_cache_bytes_max: int = 32 * MIB
    """Of batches made for Kafka clients from records that other clients published."""
    kafka_partitions_default: int = 4
    """Of a topic that is created without saying how many; from 1 to 4,096."""
    kafka_auto_create: bool = True
    """Whether a topic that a Kafka client asks about is created."""
    kafka_auto_create_per_minute_max: int = 100
    """Topics that a broker creates in a minute for the Kafka clients of one address that ask about them. It does not
    bind CreateTopics. At least 1."""
    kafka_internal_partitions: int = 8
    """Of the internal topic of Kafka's groups. It can not be changed once that is there."""

    def __post_init__(self) -> None:
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise InvalidArgument(f"{name} is {value:,}: give from {least:,} to {most:,}")
        check_name("kafka_namespace", self.kafka_namespace)
        if self.kafka_advertise and not self.kafka_listen:
            raise InvalidArgument("kafka_advertise is given without kafka_listen: Kafka clients would dial in vain")
