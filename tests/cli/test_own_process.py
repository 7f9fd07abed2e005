"""Measurements of one's own process, also while it can open no file."""

import contextlib
import errno
import os
import resource
import time
from collections.abc import Iterator

import pytest

from seaweedmq.cli.servers.own_process import OwnProcess

BUSY_S = 0.1
MEASURED = OwnProcess()


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Let this process open nothing."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
            os.open("/", os.O_RDONLY)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_memory_is_known_without_a_descriptor() -> None:
    with no_descriptors():
        known_bytes = MEASURED.resident_bytes()
    assert known_bytes > 1 << 20


def test_processor_time_is_known_without_a_descriptor() -> None:
    with no_descriptors():
        MEASURED.cpu_share()
        began = time.monotonic()
        while time.monotonic() - began < BUSY_S:
            pass
        share = MEASURED.cpu_share()
    assert 0.0 < share < 2.0
