"""Reservation of ports of 127.0.0.1 for servers of other processes.

A reserved port is bound without a listener: the kernel refuses connections to it, and assigns it neither to a socket
that binds port 0 nor to an outgoing connection. A server that binds its number may nevertheless listen on it. Linux
allows that beside a bound socket that does not listen, if both set SO_REUSEADDR, as gRPC, asyncio, etcd, Java and Redis
do. So no other process takes the port before its server starts, or between two starts of the server.
"""

import socket
import sys
import weakref

HOST = "127.0.0.1"


class ReservedPort:
    """A port that is reserved until ``close``, or until this object is garbage; a context manager."""

    def __init__(self, port: int = 0, *, is_shared: bool = True) -> None:
        """Reserve ``port``, or any free one for 0, which no other process shares.

        With ``is_shared`` another process may have reserved it. Raises OSError if a socket listens there, or the port
        must not be used.
        """
        bound = socket.socket()
        self._release = weakref.finalize(self, bound.close)
        try:
            if port and is_shared:  # otherwise TIME_WAIT connections of an earlier server would block the port
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((HOST, port))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        except OSError:
            self.close()
            raise
        self.port: int = bound.getsockname()[1]
        if sys.platform != "linux":  # other kernels allow no server to listen beside this socket
            self.close()

    @property
    def address(self) -> str:
        """The address ``127.0.0.1:port``."""
        return f"{HOST}:{self.port}"

    def close(self) -> None:
        """Release the port, so that other processes may take it. A repeated call has no effect."""
        self._release()

    def __enter__(self) -> "ReservedPort":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
