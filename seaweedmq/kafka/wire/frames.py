"""What travels on a connection: requests and replies with their headers. The four bytes of a length go before each.

Request header: key, version, correlation id, client id, and tagged fields where the version of the message is a
"flexible" one. Reply header: correlation id, and likewise; but never those of ApiVersions replies, which a client reads
before it knows what the broker speaks.
"""

import struct
from collections.abc import Callable, Sequence

from seaweedmq.errors import Unsupported
from seaweedmq.kafka.wire.decoding import Malformed, decode_counted, skip_tags, text_of
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS, Buffer, EncodedReply, Line, Reply, Request, nothing
from seaweedmq.kafka.wire.versions import is_advertised, name_of

_REQUEST_HEAD = struct.Struct(">hhih")
_REPLY_HEAD = struct.Struct(">ii")
LENGTH_BYTES = 4
HEAD_BYTES_MIN = _REQUEST_HEAD.size
"""Of a request, without its length."""


class NotAdvertised(Unsupported):
    """A request of an API, or in a version, that was not offered. Kafka closes the connection, too."""


def read_request(
    data: memoryview,
    *,
    peer: str,
    client_host: str,
    connection: int,
    line: Line,
    settle: Callable[[], None] = nothing,
) -> Request:
    """A request from its bytes, which it may refer to.

    That of ApiVersions in a version from the future has no body (None): how it looks is not known, and the client is to
    be told which versions are.

    Raises:
        Malformed: no request.
        NotAdvertised: see the class.
    """
    if len(data) < HEAD_BYTES_MIN:
        raise Malformed(f"a request of {len(data)} bytes")
    key, version, correlation_id, client_id_bytes = _REQUEST_HEAD.unpack_from(data)
    known = is_advertised(key, version)
    if not known and key != API.API_VERSIONS:
        raise NotAdvertised(f"{name_of(key)} version {version} is not advertised")
    position = HEAD_BYTES_MIN + max(0, client_id_bytes)
    if position > len(data):
        raise Malformed(f"a client id of {client_id_bytes:,} bytes in {len(data):,}")
    client_id = text_of(data[HEAD_BYTES_MIN:position])
    body, elements = None, 0
    if known:
        message = REQUESTS[key]
        if message.flexible_version_q(version):
            position = skip_tags(data, position)
        try:
            body, elements = decode_counted(message, version, data[position:])
        except Malformed as error:
            raise Malformed(f"{name_of(key)} version {version}: {error}") from None
    return Request(
        api=key,
        version=version,
        correlation_id=correlation_id,
        client_id=client_id,
        body=body,
        peer=peer,
        client_host=client_host,
        size_bytes=len(data),
        connection=connection,
        line=line,
        ahead=line.urgent,
        elements=elements,
        settle=settle,
    )


def reply_buffers(api: int, version: int, correlation_id: int, reply: Reply) -> Sequence[Buffer]:
    """A reply to a request of this API and version, with header and length, in buffers to be sent in this order."""
    if api == API.API_VERSIONS and not is_advertised(api, version):
        version = 0
    buffers = list(reply.buffers) if isinstance(reply, EncodedReply) else [reply.encode(version=version)]
    tags = b"\0" if api != API.API_VERSIONS and REPLIES[api].flexible_version_q(version) else b""
    size = _REPLY_HEAD.size - LENGTH_BYTES + len(tags) + sum(map(len, buffers))
    head = _REPLY_HEAD.pack(size, correlation_id) + tags
    if len(buffers) == 1 and len(buffers[0]) <= JOIN_BYTES_MAX:
        return [head + buffers[0]]
    return [head, *buffers]


JOIN_BYTES_MAX = 16_384
"""Below it one copy costs less than one more buffer for the kernel."""
