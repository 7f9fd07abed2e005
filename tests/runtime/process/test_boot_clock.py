"""Leases are measured by a clock that advances while the machine is suspended."""

import sys
import time

import pytest

from seaweedmq.runtime.process.boot_clock import boot_s


def test_it_goes_forward_as_time_does() -> None:
    began, began_s = time.monotonic(), boot_s()
    time.sleep(0.05)
    assert boot_s() - began_s == pytest.approx(time.monotonic() - began, abs=0.02)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such clock")
def test_on_linux_it_is_the_one_that_counts_suspended_time() -> None:
    assert boot_s() == pytest.approx(time.clock_gettime(time.CLOCK_BOOTTIME), abs=1.0)
