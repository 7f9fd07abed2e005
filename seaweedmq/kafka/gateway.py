"""Assembly of the gateway: the listener and the table of request handlers."""

import re
from collections.abc import Iterable

from seaweedmq.kafka.server import KafkaServer, bind
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.kafka.wire.messages import API, ApiVersionsResponse, Handler, HandlerGroup, Reply, Request
from seaweedmq.kafka.wire.versions import ADVERTISED, is_advertised
from seaweedmq.model.config import BrokerConfig
from seaweedmq.model.kafka.codes import Code
from seaweedmq.rpc.address import Address

NAMED_FROM = 3
"""Version of ApiVersions from which a request names the client software."""
_SOFTWARE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", re.ASCII)
STOP_GRACE_S = 5.0
"""Seconds that requests already read have to be answered when the broker stops."""


class Gateway:
    """The listener for Kafka clients of one broker.

    The constructor binds the address, so that ``address`` is known, and :meth:`start` listens. A broker that serves
    nothing yet rejects connections.

    Raises:
        AlreadyExists: If the port is taken.
        InvalidArgument: If the host is not an address of this machine.
    """

    def __init__(self, config: BrokerConfig, listen: Address, advertise: Address | None = None) -> None:
        self._config = config
        self._bound = bind(listen.host, listen.port)
        self._server: KafkaServer | None = None
        self.address = str(advertise or Address(listen.host, self._bound.getsockname()[1]))
        """The ``host:port`` that Kafka clients dial."""

    @property
    def held_bytes(self) -> int:
        """Bytes of unanswered requests and of replies that clients have not read."""
        return 0 if self._server is None else self._server.in_flight.taken_bytes

    async def start(self, groups: Iterable[HandlerGroup], in_flight_bytes_max: int) -> None:
        """Answer requests by the handlers of ``groups``, with at most ``in_flight_bytes_max`` bytes of them in memory.

        Raises:
            AlreadyExists: If another process has begun to listen at the address.
        """
        self._server = KafkaServer(handlers_of(groups), self._config, in_flight_bytes_max)
        await self._server.start(self._bound)

    async def stop(self) -> None:
        """Answer the requests already read, within ``STOP_GRACE_S``, and close all connections."""
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
        self._bound.close()


def handlers_of(groups: Iterable[HandlerGroup]) -> dict[int, Handler]:
    """Return the handler of each API by its key, including ApiVersions."""
    handlers: dict[int, Handler] = {API.API_VERSIONS: _versions}
    for group in groups:
        for api, handler in group.handlers().items():
            assert api not in handlers, f"two handlers for {API(api).name}"
            handlers[api] = handler
    return handlers


async def _versions(request: Request) -> Reply:
    if request.body is not None and request.version >= NAMED_FROM:
        for what in (request.body.client_software_name, request.body.client_software_version):
            if not _SOFTWARE.fullmatch(what):
                raise KafkaError(
                    Code.INVALID_REQUEST,
                    f"client software {what[:40]!r} is invalid: use A-Z a-z 0-9 . -, a letter or digit at both ends",
                )
    return versions_reply(request)


def versions_reply(request: Request) -> Reply:
    """Return the supported APIs and versions, to an unknown version with UNSUPPORTED_VERSION in version 0's layout."""
    known = is_advertised(request.api, request.version)
    version = request.version if known else 0
    keys = [
        ApiVersionsResponse.ApiVersion(
            version=version, api_key=int(api), min_version=versions.lowest, max_version=versions.highest
        )
        for api, versions in ADVERTISED.items()
    ]
    code = Code.NONE if known else Code.UNSUPPORTED_VERSION
    return ApiVersionsResponse(version=version, error_code=int(code), api_keys=keys)
