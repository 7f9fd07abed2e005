"""Simulation of a process that has reached its limit of open files."""

import contextlib
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

SPARE = 16
"""Descriptors above the highest open one, so that threads of other tests may ``poll`` theirs: ``poll`` fails with
EINVAL for more descriptors than the limit."""


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Keep this process from opening files. Open descriptors stay usable, also in threads of other tests."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(descriptor.name) for descriptor in Path("/proc/self/fd").iterdir())
    with contextlib.ExitStack() as taken:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + SPARE, before[1]))
        taken.callback(resource.setrlimit, resource.RLIMIT_NOFILE, before)
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            _open_until_refused(taken)
        yield


def _open_until_refused(taken: contextlib.ExitStack) -> None:
    while True:
        taken.callback(os.close, os.open("/", os.O_RDONLY))
