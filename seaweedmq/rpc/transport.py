"""What both ends of a connection agree on: names, metadata, and how a silent peer is found out.

Keepalive: an HTTP/2 ping after ``KEEPALIVE_INTERVAL_MS`` of silence on a connection with open calls, answered by the
peer's IO threads even while its Python code is busy, and the connection given up ``KEEPALIVE_TIMEOUT_MS`` later. A
frozen machine or process is so found within ``DETECTION_S``. Idle connections cost no pings. gRPC's default answer to
pings that frequent is to drop the client ("too many pings"), so servers are told to permit them.
"""

from typing import Final

KEEPALIVE_INTERVAL_MS: Final = 1_000
KEEPALIVE_TIMEOUT_MS: Final = 1_500
DETECTION_S: Final = (KEEPALIVE_INTERVAL_MS + KEEPALIVE_TIMEOUT_MS) / 1_000
"""Each end of a connection sees within this time that the other is gone."""
CONNECT_TIMEOUT_MS: Final = 3_000
"""For TCP and the HTTP/2 handshake together; calls made meanwhile wait for the outcome."""
RECONNECT_INTERVAL_MS_MAX: Final = 250
"""gRPC's own limit of 120 s would hide a broker for minutes after it came back."""
MESSAGE_SLACK_BYTES: Final = 64 * 1024
"""What a message may have beyond its frames."""

STREAM_LOOKAHEAD_BYTES: Final = 1024 * 1024
"""What a server takes in of a stream before anybody asks for it. Left to itself gRPC measures the line and takes up to
16 MiB of each. The streams that carry frames are one or two a process and are read as they come: what waits there is
bounded by the windows of their channels (``rpc.channels``). All others carry next to nothing this way."""

DATA_SERVICE: Final = "seaweedmq.v1.Data"
ADMIN_SERVICE: Final = "seaweedmq.v1.Admin"
CLUSTER_SERVICE: Final = "seaweedmq.v1.Cluster"
GROUPS_SERVICE: Final = "seaweedmq.v1.Groups"
SERVICES: Final = (DATA_SERVICE, ADMIN_SERVICE, CLUSTER_SERVICE, GROUPS_SERVICE)

PUBLISH: Final = f"/{DATA_SERVICE}/Publish"
SUBSCRIBE: Final = f"/{DATA_SERVICE}/Subscribe"
REPLICATE: Final = f"/{CLUSTER_SERVICE}/Replicate"
REPORT_LOAD: Final = f"/{CLUSTER_SERVICE}/ReportLoad"
AT_ONCE: Final = "Together"
"""The method of a service by which its calls travel together."""
JOIN_GROUP: Final = f"/{GROUPS_SERVICE}/Join"

PROTOCOL_KEY: Final = "seaweedmq-protocol"
"""Metadata of every call: the protocol version of the caller."""
FORWARDED_KEY: Final = "seaweedmq-passed-on"
"""Metadata of a call that one broker passes on to another, which must not pass it on again."""
ERROR_KEY: Final = "seaweedmq-error"
"""Trailing metadata of a failed call: ``SeaweedMQError.code``."""

_KEEPALIVE = (
    ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),  # 60 s otherwise, and keepalive waits for it
    ("grpc.keepalive_permit_without_calls", 0),
    ("grpc.http2.max_pings_without_data", 0),
)

Options = tuple[tuple[str, int], ...]


def client_options(message_bytes_max: int) -> Options:
    """Channel arguments of a client that accepts messages up to this size."""
    return (
        *_KEEPALIVE,
        ("grpc.max_receive_message_length", message_bytes_max),
        ("grpc.max_send_message_length", -1),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", CONNECT_TIMEOUT_MS),
        ("grpc.max_reconnect_backoff_ms", RECONNECT_INTERVAL_MS_MAX),
        ("grpc.use_local_subchannel_pool", 1),  # closing a dialer closes its connections, whoever else dialled
        ("grpc.enable_http_proxy", 0),  # brokers are near; a proxy of the environment is not meant for them
    )


def server_options(message_bytes_max: int, connections_max: int) -> Options:
    """Channel arguments of a server that accepts messages up to this size, and closes connections beyond so many."""
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
