"""A child process leaves its parent's resources alone."""

import os

from seaweedmq.runtime.process.forking import leave_alone_in_children


class Connection:
    """An object that reports its destruction."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def __del__(self) -> None:
        os.write(self._pipe, b"destroyed ")


class Holder:
    def __init__(self, connection: Connection) -> None:
        self.connection = connection


def test_a_child_does_not_destroy_it_and_the_parent_does() -> None:
    reading, writing = os.pipe()
    holder = Holder(Connection(writing))
    leave_alone_in_children(holder)
    child = os.fork()
    if child == 0:
        del holder
        os.write(writing, b"left ")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    del holder
    assert os.read(reading, 100) == b"left destroyed "
    os.close(reading)
    os.close(writing)
