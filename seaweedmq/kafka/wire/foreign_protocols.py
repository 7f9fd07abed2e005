"""Detection of clients of other protocols, by the first four bytes, where Kafka requests have their length."""

from seaweedmq.kafka.wire.frames import HEAD_BYTES_MIN

_TEXTS = (
    (b"GET ", "HTTP"),
    (b"HEAD", "HTTP"),
    (b"POST", "HTTP"),
    (b"PUT ", "HTTP"),
    (b"DELE", "HTTP"),
    (b"OPTI", "HTTP"),
    (b"PRI ", "HTTP/2, as gRPC does: use the port for SeaweedMQ's own clients"),
    (b"SSH-", "SSH"),
)


def describe_foreign(length: bytes, size: int, bytes_max: int) -> str:
    """Return the reason why a request with these first bytes, and so this size, is rejected."""
    for text, name in _TEXTS:
        if length == text:
            return f"the client speaks {name}"
    if length[0] == 0x16 and length[1] == 0x03:
        return "the client speaks TLS: set its security.protocol to PLAINTEXT"
    if size > bytes_max:
        return (
            f"a request of {size:,} bytes, above kafka_request_bytes_max = {bytes_max:,}: raise it on every broker, or "
            "lower the client's max.request.size"
        )
    return f"a request of {size:,} bytes, below the {HEAD_BYTES_MIN} of its header"
