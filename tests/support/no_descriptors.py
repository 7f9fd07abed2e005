"""A process that can open nothing more, as when its limit of open files is reached."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator

import pytest


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing; what is open stays."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            os.open("/", os.O_RDONLY)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
