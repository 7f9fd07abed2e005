"""Ports of this machine for servers that are about to be started."""

import contextlib
import socket


def free_ports(count: int) -> int:
    """The first of ``count`` neighbouring ports on 127.0.0.1 that are free now."""
    while True:
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError, OverflowError):
            first = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
            for port in range(first + 1, first + count):
                stack.enter_context(socket.create_server(("127.0.0.1", port)))
            return int(first)
