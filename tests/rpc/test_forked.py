"""A process that was forked while its parent had connections rejects new ones at once, with the remedy."""

import os

from seaweedmq.errors import InvalidArgument
from seaweedmq.rpc.client import GrpcDialer


def dialed_in_a_child() -> str:
    """Connect in a child, and return its error."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            GrpcDialer()
            os.write(writing, b"works")
        except InvalidArgument as error:
            os.write(writing, str(error).encode())
        os._exit(0)
    os.close(writing)
    assert os.waitpid(child, 0)[1] == 0
    said = os.read(reading, 1_000).decode()
    os.close(reading)
    return said


def test_a_child_of_a_parent_with_connections_is_told_to_be_spawned() -> None:
    dialer = GrpcDialer()
    said = dialed_in_a_child()
    assert said.startswith(f"process {os.getpid()} had connected before it forked this one, ")
    assert "get_context('spawn')" in said
    del dialer
