"""The gateway, put together: the listener, and who answers which request."""

import re
from collections.abc import Iterable, Mapping
from typing import Protocol

from seaweedmq.kafka.server import KafkaServer, bind
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import API, ApiVersionsResponse, Handler, Reply, Request
from seaweedmq.kafka.wire.versions import ADVERTISED, is_advertised
from seaweedmq.model.config import BrokerConfig
from seaweedmq.rpc.address import Address

NAMED_FROM = 3
"""Version of ApiVersions in which clients say what they are."""
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", re.ASCII)
STOP_GRACE_S = 5.0
"""How long what was read may take to be answered when the broker stops."""


class Room(Protocol):
    """A module that answers some of the APIs."""

    def handlers(self) -> Mapping[int, Handler]:
        """By API key."""


class Gateway:
    """The listener for Kafka clients of one broker. It is bound when it is made, so that its ``address`` is known, and
    listens from ``start`` on: a broker that serves nothing yet rejects connections.

    Raises:
        AlreadyExists: the port is taken.
        InvalidArgument: the host is none of this machine.
    """

    def __init__(self, config: BrokerConfig, listen: Address, advertise: Address | None = None) -> None:
        self._config = config
        self._bound = bind(listen.host, listen.port)
        self._server: KafkaServer | None = None
        self.address = str(advertise or Address(listen.host, self._bound.getsockname()[1]))
        """``host:port`` that Kafka clients dial."""

    @property
    def held_bytes(self) -> int:
        """Bytes of requests that are not answered and of replies that are not taken."""
        return 0 if self._server is None else self._server.in_flight.taken_bytes

    async def start(self, rooms: Iterable[Room], in_flight_bytes_max: int) -> None:
        """Answer requests, each by the room that has a handler for it; so much of them may be in memory."""
        self._server = KafkaServer(handlers_of(rooms), self._config, in_flight_bytes_max)
        await self._server.start(self._bound)

    async def stop(self) -> None:
        """Answer what was read, close the connections."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        self._bound.close()


def handlers_of(rooms: Iterable[Room]) -> dict[int, Handler]:
    """Who answers which API, by its key; ApiVersions among them."""
    handlers: dict[int, Handler] = {API.API_VERSIONS: _versions}
    for room in rooms:
        for api, handler in room.handlers().items():
            assert api not in handlers, f"two rooms answer {API(api).name}"
            handlers[api] = handler
    return handlers


async def _versions(request: Request) -> Reply:
    if request.body is not None and request.version >= NAMED_FROM:
        for what in (request.body.client_software_name, request.body.client_software_version):
            if not _SOFTWARE.fullmatch(what):
                raise KafkaError(
                    Code.INVALID_REQUEST,
                    f"client software {what[:40]!r}: use A-Z a-z 0-9 . -, the first and the last a letter or digit",
                )
    return versions_reply(request)


def versions_reply(request: Request) -> Reply:
    """What is answered, in which versions. A client that asks in a version from the future learns it, too, as an error
    in the first version.
    """
    known = is_advertised(request.api, request.version)
    version = request.version if known else 0
    keys = [
        ApiVersionsResponse.ApiVersion(
            version=version, api_key=int(api), min_version=versions.lowest, max_version=versions.highest
        )
        for api, versions in ADVERTISED.items()
    ]
    code = Code.NONE if known else Code.UNSUPPORTED_VERSION
    return ApiVersionsResponse(version=version, error_code=int(code), api_keys=keys, throttle_time_ms=0)
