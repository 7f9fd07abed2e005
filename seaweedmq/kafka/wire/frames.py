"""What travels on a connection: requests and replies with their headers. The four bytes of a length go before each.

Request header: key, version, correlation id, client id, and tagged fields where the version of the message is a
"flexible" one. Reply header: correlation id, and likewise; but never those of ApiVersions replies, which a client reads
before it knows what the broker speaks.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from seaweedmq.errors import Unsupported
from seaweedmq.kafka.wire.decoding import (
    ELEMENTS_MAX,
    Malformed,
    Steps,
    decode_few,
    decoding,
    skip_tags,
    text_of,
)
from seaweedmq.kafka.wire.encoding import encoding
from seaweedmq.kafka.wire.messages import API, REPLIES, REQUESTS, Buffer, EncodedReply, Line, Reply, Request, nothing
from seaweedmq.kafka.wire.versions import is_advertised, name_of
from seaweedmq.runtime.turns import Turn, at_once, endless_turn

_REQUEST_HEAD = struct.Struct(">hhih")
_REPLY_HEAD = struct.Struct(">ii")
LENGTH_BYTES = 4
HEAD_BYTES_MIN = _REQUEST_HEAD.size
"""Of a request, without its length."""
ADMIN_ELEMENTS_MAX = 10_000
"""Elements of a request to produce, or about topics, groups and configs: each costs some 100 us, and some of them are
one event of a group's state."""
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
"""Limits by API; for the others ``ADMIN_ELEMENTS_MAX``. One consumer may have tens of thousands of partitions."""


class NotAdvertised(Unsupported):
    """A request of an API, or in a version, that was not offered. Kafka closes the connection, too."""


def elements_max(api: int) -> int:
    """The most elements that a request of an API may have, by what each costs."""
    return _ELEMENTS_MAX.get(api, ADMIN_ELEMENTS_MAX)


def read_request(data: memoryview, *, peer: str, client_host: str, connection: int, line: Line) -> Request:
    """Read a request at once. See :func:`reading`."""
    return at_once(reading(data, peer=peer, client_host=client_host, connection=connection, line=line))


def reading(
    data: memoryview,
    *,
    peer: str,
    client_host: str,
    connection: int,
    line: Line,
    settle: Callable[[], None] = nothing,
    turn: Turn | None = None,
) -> Steps[Request]:
    """Read a request from its bytes, which it may refer to, in steps.

    That of ApiVersions in a version from the future has no body (None): how it looks is not known, and the reply names
    the versions that are.

    Args:
        settle: of the request.
        turn: the turn that the request's handler continues; None: one that never ends.

    Raises:
        Malformed: If the bytes are not a request.
        NotAdvertised: See the class.
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
            few = decode_few(message, version, data[position:])
            body, elements = few or (yield from decoding(message, version, data[position:], elements_max(key)))
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
        turn=turn or endless_turn(),
    )


def reply_buffers(api: int, version: int, correlation_id: int, reply: Reply) -> Sequence[Buffer]:
    """A reply to a request of this API and version, with header and length, in buffers to be sent in this order."""
    version = _reply_version(api, version)
    buffers = list(reply.buffers) if isinstance(reply, EncodedReply) else [reply.encode(version=version)]
    return _with_head(api, version, correlation_id, buffers)


def writing(api: int, version: int, correlation_id: int, reply: Any) -> Steps[Sequence[Buffer]]:
    """Encode a reply of many elements in steps, as :func:`reply_buffers` does at once."""
    version = _reply_version(api, version)
    parts: list[Buffer] = []
    for part in _encoding(reply, version):
        parts.append(part)
        yield
    return _with_head(api, version, correlation_id, [b"".join(parts)])


def _encoding(reply: Any, version: int) -> Iterator[Buffer]:
    reply.API_VERSION = version
    return encoding(reply, version)


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
"""Below it one copy costs less than one more buffer for the kernel."""
