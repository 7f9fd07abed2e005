"""A reserved port is its server's alone, also before the server listens and after it has ended."""

import errno
import socket
import struct
import sys

import pytest

from seaweedmq.runtime.process.free_ports import HOST, ReservedPort
from tests.support.free_ports import free_ports

IP_LOCAL_PORT_RANGE = 51
"""Option: range from which the kernel chooses a port for this socket. Since Linux 6.3, and not in Python's module."""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a server listen on a reserved port")


def error_of(dial: socket.socket, address: tuple[str, int]) -> int:
    with dial:
        return dial.connect_ex(address)


def choosing_only(port: int) -> socket.socket:
    """Return a socket for which the kernel may choose no other port."""
    made = socket.socket()
    try:
        made.setsockopt(socket.IPPROTO_IP, IP_LOCAL_PORT_RANGE, struct.pack("I", port | port << 16))
    except OSError as error:
        made.close()
        pytest.skip(f"this kernel has no IP_LOCAL_PORT_RANGE: {error.strerror}")
    return made


def test_its_server_listens_and_listens_again() -> None:
    with ReservedPort() as reserved:
        address = (HOST, reserved.port)
        for _ in range(2):
            assert error_of(socket.socket(), address) == errno.ECONNREFUSED
            with socket.create_server(address):
                assert error_of(socket.socket(), address) == 0
                with pytest.raises(OSError, match="Address already in use"):
                    socket.create_server(address)


def test_the_kernel_gives_it_to_no_one_else() -> None:
    with ReservedPort() as reserved, socket.create_server((HOST, 0)) as other:
        with choosing_only(reserved.port) as unbound, pytest.raises(OSError, match="Address already in use"):
            unbound.bind((HOST, 0))
        assert error_of(choosing_only(reserved.port), other.getsockname()) == errno.EADDRNOTAVAIL
        reserved.close()
        assert error_of(choosing_only(reserved.port), other.getsockname()) == 0


def test_a_port_that_is_taken_is_refused_unless_its_reservation_is_shared() -> None:
    with socket.create_server((HOST, 0)) as taken, pytest.raises(OSError, match="Address already in use"):
        ReservedPort(taken.getsockname()[1])
    with ReservedPort() as outer, ReservedPort(outer.port) as inner:
        assert inner.address == outer.address
        with pytest.raises(OSError, match="Address already in use"):
            ReservedPort(outer.port, is_shared=False)
    first = free_ports(3)
    for port in range(first, first + 3):
        with pytest.raises(OSError, match="Address already in use"):
            ReservedPort(port, is_shared=False)
