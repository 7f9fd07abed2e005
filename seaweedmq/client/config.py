"""All limits and intervals of a client. Names end with the unit."""

from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX, KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of one client, inherited by its publishers and subscribers.

    All values must be positive; only ``linger_s`` may be 0.

    Raises:
        InvalidArgument: If a value is not positive or above its limit.
    """

    connect_timeout_s: float = 10.0
    """Deadline of ``connect``."""
    connect_refused_s: float = 2.0
    """Deadline of ``connect`` while all bootstrap brokers refuse connections. Raise it in scripts that start brokers at
    the same time."""
    rpc_timeout_s: float = 10.0
    """Deadline of one call to one broker, and of the first reply on a stream."""
    admin_timeout_s: float = 30.0
    """Deadline of an admin call, over all brokers and retries."""
    stall_timeout_s: float = 10.0
    """Time without an acknowledgement after which a publish stream with frames in flight is reopened."""
    linger_s: float = 0.002
    """Time after the previous frame until which a batch collects records. Rare records are sent at once; a steady
    publisher sends a frame per ``linger_s``, or full frames."""
    batch_bytes: int = 1 * MIB
    """Target size of one frame. Raw gRPC is fastest at 256 KiB to 1 MiB per message."""
    buffer_bytes_max: int = 64 * MIB
    """Limit of a publisher's unacknowledged records; above it ``send`` waits."""
    reference_threshold: int | None = None
    """Size of a value in bytes above which ``send`` uploads it and publishes a reference. Default: what fits no frame
    (``frame_bytes_max`` of the brokers). 1 MiB relieves brokers, whose memory and logs then hold references only."""
    delivery_timeout_s: float = 120.0
    """Time from ``send`` to the receipt, after which the future fails with ``DeadlineExceeded``. At most 600 s: brokers
    recognize a repeated frame for slightly longer."""
    close_timeout_s: float = 150.0
    """Time for which the end of a ``with`` block waits for deliveries. The default exceeds ``delivery_timeout_s``."""
    metadata_max_age_s: float = 30.0
    """Interval at which publishers and subscribers query the partitions of a topic that has some."""
    subscribe_buffer_bytes_max: int = 32 * MIB
    """Limit of frame bytes in flight to a subscriber and not consumed, over all its segments."""
    credit_bytes_min: int = 256 * KIB
    """Lower limit of the credit of one segment's stream, however many segments share the buffer."""
    read_retry_timeout_s: float = 120.0
    """Time for which a subscriber retries an unreachable segment before it raises ``Unavailable``."""
    group_commit_interval_s: float = 0.2
    """Interval at which a member of a group commits acknowledged offsets."""
    group_unacked_bytes_max: int = 256 * MIB
    """Limit of frame bytes that a member holds for unacknowledged records; above it delivery waits."""
    redelivery_s_min: float = 0.1
    """First delay before a record whose handler raised is redelivered; it doubles with each delivery."""
    redelivery_s_max: float = 60.0
    """Upper limit of that delay."""
    backoff_s_min: float = 0.02
    """Mean of the first pause between retries. Pauses are random, and their upper bound doubles with each attempt."""
    backoff_s_max: float = 1.0
    """Upper limit of a pause."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if value is None:
                continue
            if not value >= 0 or (value == 0 and name != "linger_s"):
                raise InvalidArgument(f"{name} is {value}: it must be positive")
        if self.delivery_timeout_s > DELIVERY_TIMEOUT_S_MAX:
            raise InvalidArgument(
                f"delivery_timeout_s is {self.delivery_timeout_s:g}: use at most {DELIVERY_TIMEOUT_S_MAX:g}; brokers "
                "keep a producer's state no longer and could store a record twice"
            )
