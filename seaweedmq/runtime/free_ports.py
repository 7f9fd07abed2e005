"""Ports of 127.0.0.1 that are reserved for servers of other processes.

A reserved port is bound, and nothing listens on it: who dials it is refused. The kernel gives it to no one who asks for
any port, and to no outgoing connection. But a server that binds it by its number may listen on it, as Linux allows that
beside a socket that does not listen, if both set SO_REUSEADDR. gRPC, asyncio, etcd, Java and Redis do. So nothing gets
in between the choice of a port and its server, nor between the end of a server and its next start.
"""

import socket
import sys
import weakref

HOST = "127.0.0.1"
_UNTIL_THE_END: "list[ReservedPort]" = []


class ReservedPort:
    """A port that stays reserved until ``close``, or until nothing refers to this object; a context manager."""

    def __init__(self, port: int = 0, *, is_shared: bool = True) -> None:
        """Reserve ``port``, or any free one for 0.

        Args:
            is_shared: whether the port may be one that another process has reserved, too. It never may if it is 0.

        Raises:
            OSError: If something listens on the port, or it must not be used.
        """
        bound = socket.socket()
        self._release = weakref.finalize(self, bound.close)
        try:
            if port and is_shared:  # also where connections of an earlier server are in TIME_WAIT
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((HOST, port))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            self.close()
            raise
        self.port: int = bound.getsockname()[1]
        if sys.platform != "linux":  # other kernels let nobody listen beside this socket
            self.close()

    @property
    def address(self) -> str:
        """``127.0.0.1:port``."""
        return f"{HOST}:{self.port}"

    def close(self) -> None:
        """Leave the port to its server, or to anybody. May be called again."""
        self._release()

    def __enter__(self) -> "ReservedPort":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def free_ports(count: int) -> int:
    """Reserve ``count`` neighbouring ports until this process ends.

    Returns:
        The first of them.
    """
    while True:
        ports = [ReservedPort()]
        try:
            ports += [ReservedPort(ports[0].port + i, is_shared=False) for i in range(1, count)]
        except (OSError, OverflowError):  # a neighbour is taken, or there is none
            continue
        _UNTIL_THE_END.extend(ports)
        return ports[0].port
