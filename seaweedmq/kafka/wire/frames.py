"""Codec of requests and replies with their headers, each preceded by four bytes of length.

A request header has the key, version, correlation id, client id, and tagged fields if the version of the message is
flexible. A reply header has the correlation id, and tagged fields likewise. ApiVersions replies never have tagged
fields in the header: a client reads them before it knows the broker's versions.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from seaweedmq.errors import Unsupported
from seaweedmq.kafka.wire.decoding import Steps, decode_few, decoding, skip_tags, text_of
from seaweedmq.kafka.wire.encoding import encoding
from seaweedmq.kafka.wire.message_cursor import ELEMENTS_MAX, Malformed
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS, Buffer, EncodedReply, Line, Reply, Request, nothing
from seaweedmq.kafka.wire.versions import is_advertised, name_of
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.runtime.turns import Turn, endless_turn

_REQUEST_HEAD = struct.Struct(">hhih")
_REPLY_HEAD = struct.Struct(">ii")
LENGTH_BYTES = 4
HEAD_BYTES_MIN = _REQUEST_HEAD.size
"""Minimum size of a request header, without the length and the client id."""
ADMIN_ELEMENTS_MAX = 10_000
"""Maximum elements of a Produce, or of a request about topics, groups or configs. Each costs about 100 us, and some
requests are one event of a group's state."""
LEAVING_MAX = 2_000
_ELEMENTS_MAX: Mapping[int, int] = {
    API.FETCH: ELEMENTS_MAX,
    API.LIST_OFFSETS: ELEMENTS_MAX,
    API.METADATA: ELEMENTS_MAX,
    API.OFFSET_COMMIT: ELEMENTS_MAX,
    API.OFFSET_FETCH: ELEMENTS_MAX,
    API.OFFSET_FOR_LEADER_EPOCH: ELEMENTS_MAX,
    API.DESCRIBE_TOPIC_PARTITIONS: ELEMENTS_MAX,
    API.LEAVE_GROUP: LEAVING_MAX,
}
"""Limits by API; others have ``ADMIN_ELEMENTS_MAX``. One consumer may have tens of thousands of partitions."""


class NotAdvertised(Unsupported):
    """An error for a request in an API or version that is not advertised; as in Kafka, it closes the connection."""


def elements_max(api: int) -> int:
    """Return the maximum elements of a request of an API, which depends on the cost of each."""
    return _ELEMENTS_MAX.get(api, ADMIN_ELEMENTS_MAX)


def reading(
    data: memoryview,
    *,
    context: CallContext,
    connection: int,
    line: Line,
    settle: Callable[[], None] = nothing,
    turn: Turn | None = None,
) -> Steps[Request]:
    """Read a request in steps; the request may contain views of ``data``.

    An ApiVersions request in an unknown version has body None: its layout is unknown, and the reply names the known
    versions.

    ``context`` is the connection's client; the request has it with its own client id. ``settle`` releases the request's
    memory. The request's handler continues ``turn``; None: one that never ends.

    Raises:
        Malformed: If the bytes are not a request.
        NotAdvertised: If the API or the version is not advertised.
    """
    if len(data) < HEAD_BYTES_MIN:
        raise Malformed(f"a request of {len(data)} bytes, shorter than its header")
    key, version, correlation_id, client_id_bytes = _REQUEST_HEAD.unpack_from(data)
    known = is_advertised(key, version)
    if not known and key != API.API_VERSIONS:
        raise NotAdvertised(f"{name_of(key)} version {version} is not advertised")
    position = HEAD_BYTES_MIN + max(0, client_id_bytes)
    if position > len(data):
        raise Malformed(f"a client id of {client_id_bytes:,} bytes in a request of {len(data):,}")
    client_id = text_of(data[HEAD_BYTES_MIN:position])
    body, elements = None, 0
    if known:
        message = REQUESTS[key]
        if message.flexible_version_q(version):
            position = skip_tags(data, position)
        try:
            few = decode_few(message, version, data[position:])
            body, elements = few or (yield from decoding(message, version, data[position:], elements_max(key)))
        except Malformed as error:
            raise Malformed(f"{name_of(key)} version {version}: {error}") from None
    return Request(
        api=key,
        version=version,
        correlation_id=correlation_id,
        body=body,
        context=context if client_id == context.client_id else replace(context, client_id=client_id),
        size_bytes=len(data),
        connection=connection,
        line=line,
        ahead=line.urgent,
        elements=elements,
        settle=settle,
        turn=turn or endless_turn(),
    )


def reply_buffers(api: int, version: int, correlation_id: int, reply: Reply) -> Sequence[Buffer]:
    """Encode a reply to a request of an API and version, with length and header, as buffers in sending order."""
    version = _reply_version(api, version)
    buffers = list(reply.buffers) if isinstance(reply, EncodedReply) else [reply.encode(version=version)]
    return _with_head(api, version, correlation_id, buffers)


def writing(api: int, version: int, correlation_id: int, reply: Any) -> Steps[Sequence[Buffer]]:
    """Encode a reply with many elements in steps, as :func:`reply_buffers` does at once."""
    version = _reply_version(api, version)
    parts: list[Buffer] = []
    reply.API_VERSION = version
    for part in encoding(reply, version):
        parts.append(part)
        yield
    return _with_head(api, version, correlation_id, [b"".join(parts)])


def _reply_version(api: int, version: int) -> int:
    return 0 if api == API.API_VERSIONS and not is_advertised(api, version) else version


def _with_head(api: int, version: int, correlation_id: int, buffers: list[Buffer]) -> Sequence[Buffer]:
    tags = b"\0" if api != API.API_VERSIONS and REPLIES[api].flexible_version_q(version) else b""
    size = _REPLY_HEAD.size - LENGTH_BYTES + len(tags) + sum(map(len, buffers))
    head = _REPLY_HEAD.pack(size, correlation_id) + tags
    if len(buffers) == 1 and len(buffers[0]) <= JOIN_BYTES_MAX:
        return [head + buffers[0]]
    return [head, *buffers]


JOIN_BYTES_MAX = 16_384
"""Size up to which a copy costs less than one more buffer for the kernel."""
