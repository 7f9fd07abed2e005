"""Names, metadata and channel arguments that both ends of a connection share.

Keepalive: a side sends an HTTP/2 ping after ``KEEPALIVE_INTERVAL_MS`` of silence on a connection with open calls, and
closes the connection ``KEEPALIVE_TIMEOUT_MS`` later without a reply. The peer's IO threads reply even while its Python
code is busy. So a frozen machine or process is detected within ``DETECTION_S``. Idle connections send no pings. By
default, gRPC drops clients with such frequent pings ("too many pings"), so the server options permit them.
"""

from typing import Final

KEEPALIVE_INTERVAL_MS: Final = 1_000
KEEPALIVE_TIMEOUT_MS: Final = 1_500
DETECTION_S: Final = (KEEPALIVE_INTERVAL_MS + KEEPALIVE_TIMEOUT_MS) / 1_000
"""Seconds within which each end of a connection detects that the other is unreachable."""
CONNECT_TIMEOUT_MS: Final = 3_000
"""Milliseconds for TCP and the HTTP/2 handshake together; calls made meanwhile wait for the outcome."""
RECONNECT_INTERVAL_MS_MAX: Final = 250
"""Longest pause between attempts to connect; gRPC's default of 120 s would hide a restarted broker for minutes."""
MESSAGE_SLACK_BYTES: Final = 64 * 1024
"""Bytes that a message may have beyond its frames."""

STREAM_LOOKAHEAD_BYTES: Final = 1024 * 1024
"""Bytes of a stream that a server receives before the handler reads them.

By default, gRPC measures the connection and receives up to 16 MiB of each stream. Only one or two streams per process
carry frames. Their handlers read them at once, and the windows of their channels bound what waits there
(``rpc.channels``). All other streams carry little in this direction.
"""

DATA_SERVICE: Final = "seaweedmq.v1.Data"
ADMIN_SERVICE: Final = "seaweedmq.v1.Admin"
CLUSTER_SERVICE: Final = "seaweedmq.v1.Cluster"
GROUPS_SERVICE: Final = "seaweedmq.v1.Groups"
BLOBS_SERVICE: Final = "seaweedmq.v1.Blobs"
SERVICES: Final = (DATA_SERVICE, ADMIN_SERVICE, CLUSTER_SERVICE, GROUPS_SERVICE, BLOBS_SERVICE)

PUBLISH: Final = f"/{DATA_SERVICE}/Publish"
SUBSCRIBE: Final = f"/{DATA_SERVICE}/Subscribe"
REPLICATE: Final = f"/{CLUSTER_SERVICE}/Replicate"
REPORT_LOAD: Final = f"/{CLUSTER_SERVICE}/ReportLoad"
AT_ONCE: Final = "Together"
"""Name of each service's method by which its calls travel together."""
JOIN_GROUP: Final = f"/{GROUPS_SERVICE}/Join"
UPLOAD: Final = f"/{BLOBS_SERVICE}/Upload"
READ: Final = f"/{BLOBS_SERVICE}/Read"

PROTOCOL_KEY: Final = "seaweedmq-protocol"
"""Metadata key of every call, for the protocol version of the caller."""
FORWARDED_KEY: Final = "seaweedmq-passed-on"
"""Metadata key of a call that one broker forwards to another, which must not forward it again."""
ERROR_KEY: Final = "seaweedmq-error"
"""Trailing metadata key of a failed call, for ``SeaweedMQError.code``."""

_KEEPALIVE = (
    ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # the default is 60 s, and keepalive waits for it
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
)

Options = tuple[tuple[str, int], ...]


def client_options(message_bytes_max: int) -> Options:
    """Return the channel arguments of a client that accepts messages up to this size."""
    return (
        *_KEEPALIVE,
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_INTERVAL_MS_MAX),
        ("grpc.use_local_subchannel_pool", 1),  # closing a dialer must not affect connections of others
        ("grpc.enable_http_proxy", 0),  # a proxy of the environment is not meant for brokers
    )


def server_options(message_bytes_max: int, connections_max: int) -> Options:
    """Return the channel arguments of a server with limits for message size and number of connections."""
    return (
        *_KEEPALIVE,
        ("grpc.http2.min_ping_interval_without_data_ms", KEEPALIVE_INTERVAL_MS // 2),
        ("grpc.http2.max_ping_strikes", 0),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", STREAM_LOOKAHEAD_BYTES),
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.max_allowed_incoming_connections", connections_max),
        ("grpc.so_reuseport", 0),  # two brokers on one port would each get some of the connections
    )
