"""What speaks another protocol, told by the four bytes that Kafka's clients begin a request with."""

from seaweedmq.kafka.wire.frames import HEAD_BYTES_MIN

_TEXTS = (
    (b"GET ", "HTTP"),
    (b"HEAD", "HTTP"),
    (b"POST", "HTTP"),
    (b"PUT ", "HTTP"),
    (b"DELE", "HTTP"),
    (b"OPTI", "HTTP"),
    (b"PRI ", "HTTP/2, as gRPC does: the port for SeaweedMQ's own clients is another"),
    (b"SSH-", "SSH"),
)


def describe_foreign(length: bytes, size: int, bytes_max: int) -> str:
    """Why a request of which these are the first bytes, and so its size, is refused."""
    for text, name in _TEXTS:
        if length == text:
            return f"the client speaks {name}"
    if length[0] == 0x16 and length[1] == 0x03:
        return "the client speaks TLS: set its security.protocol to PLAINTEXT"
    if size > bytes_max:
        return (
            f"a request of {size:,} bytes, above kafka_request_bytes_max = {bytes_max:,}: raise it on every broker, or "
            "have the client send less at a time (max.request.size)"
        )
    return f"a request of {size:,} bytes, below the {HEAD_BYTES_MIN} of its header"
