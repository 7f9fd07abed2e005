"""Memory of dropped messages is reused."""

import platform
import subprocess
import sys

import pytest

FAULTS = """
import resource
from seaweedmq.runtime.process.heap import keep_freed_blocks

if {keep}:
    keep_freed_blocks()
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def messages():
    for _ in range(20):
        [b"x" * 2_000_000 for _ in range(8)]
messages()
before = faults()
messages()
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="of the GNU C library")
def test_blocks_that_were_freed_are_not_given_back_and_taken_again() -> None:
    without, kept = (
        int(subprocess.run([sys.executable, "-c", FAULTS.format(keep=keep)], capture_output=True, check=True).stdout)
        for keep in (False, True)
    )
    assert kept < 1_000 < without
