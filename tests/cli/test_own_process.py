"""Measurements of the own process, also when it can open no file."""

import time

from seaweedmq.cli.servers.own_process import OwnProcess
from tests.support.no_descriptors import no_descriptors

BUSY_S = 0.1
MEASURED = OwnProcess()


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
