"""Addresses as users type them, ``host:port``, and the check that a server can listen on one."""

import asyncio
import errno
import socket
from typing import NamedTuple

from seaweedmq.errors import AlreadyExists, InvalidArgument

DEFAULT_HOST = "127.0.0.1"
WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})
"""Hosts that listen on every interface and that no client can dial."""
_PORT_MAX = 65_535


class Address(NamedTuple):
    """A host (IPv6 without brackets) and a port; the text form is ``host:port`` with brackets around IPv6."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Parse ``host:port``, ``[v6]:port``, ``:port`` (of 127.0.0.1) or ``port``; InvalidArgument if it is none."""
    host, _, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    legal_host = (
        host.isascii() and host.isprintable() and not set(host) & set(" /[]") and (bracketed or ":" not in host)
    )
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= _PORT_MAX and len(port) <= 5 and legal_host):
        raise InvalidArgument(
            f"address {text[:200]!r} is not HOST:PORT with a port from 0 to {_PORT_MAX}: "
            "write it like 127.0.0.1:17777 or [::1]:17777"
        )
    return Address(host or DEFAULT_HOST, int(port))


async def check_free(address: Address) -> None:
    """Raise AlreadyExists if a port is in use, InvalidArgument if this process cannot bind the address.

    Binds a plain socket: gRPC reports neither the cause of a failure nor a partial bind.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise InvalidArgument(
            f"cannot listen on {address}, {error.strerror}: name an address of this machine"
        ) from error
    failures: list[OSError] = []
    for family, kind, protocol, _, target in found:
        try:
            with socket.socket(family, kind, protocol) as trial:
                trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                trial.bind(target)
        except OSError as error:
            failures.append(error)
    if any(error.errno == errno.EADDRINUSE for error in failures):
        raise port_in_use(address)
    if len(failures) == len(found):
        raise InvalidArgument(
            f"cannot listen on {address}, {failures[0].strerror}: use an address of this machine and a port above 1023"
        )


def port_in_use(address: Address) -> AlreadyExists:
    """Return the error of an address whose port is in use."""
    return AlreadyExists(
        f"port {address.port} at {address.host} is in use: stop its listener, or listen on another port"
    )
