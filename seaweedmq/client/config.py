"""Every limit and interval of a client, in one place. Units last in the names."""

from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument
from seaweedmq.model.config import DELIVERY_TIMEOUT_S_MAX, KIB, MIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Settings of one client; its publishers and subscribers take them over unless told otherwise."""

    connect_timeout_s: float = 10.0
    """How long ``connect`` tries the bootstrap brokers."""
    connect_refused_s: float = 2.0
    """How long it tries when nobody listens at any of them. More for scripts that start brokers at the same time."""
    rpc_timeout_s: float = 10.0
    """Deadline of one call to one broker, and of the first answer on a stream."""
    admin_timeout_s: float = 30.0
    """Deadline of an admin call over all brokers and repetitions."""
    stall_timeout_s: float = 10.0
    """A publish stream with frames out and no acknowledgement for this long is given up and opened again."""
    linger_s: float = 0.002
    """A batch waits for company until so long after the one before: who sends seldom never waits, who sends steadily
    makes a frame in this time, or a full one."""
    batch_bytes: int = 1 * MIB
    """Aim for one frame; raw gRPC is fastest at 256 KiB to 1 MiB a message."""
    buffer_bytes_max: int = 64 * MIB
    """A publisher's records that are not acknowledged; beyond it ``send`` waits."""
    delivery_timeout_s: float = 120.0
    """From ``send`` to the receipt; then the future fails with DeadlineExceeded. At most 600 s: brokers recognise a
    repeated frame for somewhat longer."""
    close_timeout_s: float = 150.0
    """How long leaving a ``with`` block waits for what was sent; longer than ``delivery_timeout_s`` by default."""
    metadata_max_age_s: float = 30.0
    """How often publishers and subscribers of a topic with partitions look whether there are more."""
    subscribe_buffer_bytes_max: int = 32 * MIB
    """Frame bytes under way to a subscriber and not consumed, over all its segments."""
    credit_bytes_min: int = 256 * KIB
    """Least credit of one segment's stream, however many segments share the buffer."""
    read_retry_timeout_s: float = 120.0
    """A subscriber that can not reach a segment for this long raises Unavailable."""
    group_commit_interval_s: float = 0.2
    """How often a member of a group commits what was acknowledged."""
    group_unacked_bytes_max: int = 256 * MIB
    """Frame bytes that a member keeps because records of them are not acknowledged; beyond it delivery waits."""
    redelivery_s_min: float = 0.1
    redelivery_s_max: float = 60.0
    """A record whose handler raised is handled again after a delay that doubles from the one to the other."""
    backoff_s_min: float = 0.02
    backoff_s_max: float = 1.0
    """Repetitions wait a random time up to a bound that doubles from the one to the other."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not value >= 0 or (value == 0 and name != "linger_s"):
                raise InvalidArgument(f"{name} is {value}: it must be positive")
        if self.delivery_timeout_s > DELIVERY_TIMEOUT_S_MAX:
            raise InvalidArgument(
                f"delivery_timeout_s is {self.delivery_timeout_s:g}: give at most {DELIVERY_TIMEOUT_S_MAX:g}; brokers "
                "do not remember for longer what a publisher has stored, and could store a record twice"
            )
