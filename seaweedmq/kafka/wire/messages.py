"""Kafka's messages: a decoded request, and the classes of all requests and replies.

The classes are kafka-python's, made from Apache Kafka's own schemas, and from those in ``schemas``; attributes are
the schemas' fields in snake_case. Handlers import them from here. A reply must be given all its lists: the default is a
list that all messages share.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, TypeAlias
from uuid import UUID as UUID  # noqa: TID251 - the type, not a source of randomness

from kafka.protocol import admin, consumer, metadata, producer

from seaweedmq.kafka.wire import schemas
from seaweedmq.model.messages.call_context import CallContext
from seaweedmq.runtime.signal import Signal
from seaweedmq.runtime.turns import Turn, endless_turn


class API(IntEnum):
    """The supported APIs, by their keys."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    CONSUMER_GROUP_HEARTBEAT = 68
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


PATIENT = frozenset({API.FETCH, API.PRODUCE})
"""APIs of which a client may have many requests in flight: a later one does not make the broker answer the first early.
Requests of other APIs are urgent: the client waits for the reply before it continues."""


def not_pressed(now: float, held_bytes: int) -> bool:
    """Return False without effect: the connection stays open."""
    return False


class Line:
    """The line of requests of one connection, in which each reply holds up those behind it."""

    __slots__ = ("grown", "press", "urgent")

    def __init__(self) -> None:
        self.urgent = 0
        """Number of received requests that are not of ``PATIENT`` APIs."""
        self.grown = Signal()
        """Signal that fires when ``urgent`` grows."""
        self.press: Callable[[float, int], bool] = not_pressed
        """Callback that closes the connection if its client reads too slowly, and returns whether it did. Its arguments
        are the time, and the bytes of Fetch replies for which others wait."""

    def join(self, api: int) -> None:
        """Count a received request."""
        if api not in PATIENT:
            self.answer_waiting()

    def answer_waiting(self) -> None:
        """Have requests that wait for events answered with the records available."""
        self.urgent += 1
        self.grown.fire()


def nothing() -> None:
    """Return without effect."""


@dataclass(frozen=True, slots=True)
class Request:
    """A decoded request of one connection."""

    api: int
    """The API key."""
    version: int
    correlation_id: int
    body: Any
    """The message, one of ``REQUESTS``; None for ApiVersions in an unknown version."""
    context: CallContext
    """The client, as for all requests of the connection with the same client id."""
    size_bytes: int
    connection: int
    """Id of the connection, unique in the process."""
    line: Line = field(default_factory=Line)
    """The requests of the connection."""
    ahead: int = 0
    """Number of urgent requests received before this one."""
    elements: int = 0
    """Number of elements of all arrays together."""
    settle: Callable[[], None] = nothing
    """Callback that releases memory once the request waits for others and its contents are stored elsewhere."""
    turn: Turn = field(default_factory=endless_turn)
    """The time that the handler has until it pauses for other tasks."""

    @property
    def client_host(self) -> str:
        """Host of the client as Kafka's coordinators show it: ``/127.0.0.1``."""
        return "/" + self.context.peer.rpartition(":")[0]

    @property
    def holds_up(self) -> bool:
        """Whether the client waits for an urgent reply that cannot be sent before the reply to this request."""
        return self.line.urgent > self.ahead


Buffer: TypeAlias = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class EncodedReply:
    """The encoded body of a reply, in buffers that are sent one after another."""

    buffers: Sequence[Buffer]
    sent: Callable[[], None] | None = None
    """Callback for the time when the socket has taken the buffers, or the connection is closed; called once."""


Reply: TypeAlias = Any
"""One of ``REPLIES`` in any version (the encoder sets it), an ``EncodedReply``, or None for no reply."""
Handler: TypeAlias = Callable[[Request], Awaitable[Reply]]
"""A handler of the requests of one API. That of ``API.PRODUCE`` returns an awaitable of the reply once all batches are
appended: see ``kafka.dispatch``."""


class HandlerGroup:
    """Handlers of some of the APIs: the method that handles an API has its name, in lower case."""

    def handlers(self) -> dict[int, Handler]:
        """Return the handlers by API key."""
        return {api: getattr(self, api.name.lower()) for api in API if hasattr(self, api.name.lower())}


def _classes(kind: str) -> dict[int, Any]:
    """Return the class of the messages of each API, which has the name of the API, and ``kind`` as its suffix."""
    names = {api: api.name.title().replace("_", "") + kind for api in API}
    sources = (admin, consumer, metadata, producer, schemas)
    return {api: next(getattr(s, name) for s in sources if hasattr(s, name)) for api, name in names.items()}


REQUESTS: Mapping[int, Any] = _classes("Request")
REPLIES: Mapping[int, Any] = _classes("Response")
_BY_NAME = {message.__name__: message for message in (*REQUESTS.values(), *REPLIES.values())}


def __getattr__(name: str) -> Any:
    """Return a class of messages by its name."""
    if name in _BY_NAME:
        return _BY_NAME[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
