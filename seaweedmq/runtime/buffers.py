"""Buffers for large payloads that are received in parts.

``bytearray`` clears its memory in one step, which takes milliseconds for 16 MiB. ``numpy`` asks the system for huge
pages, each of which is cleared in one step when it is first written to: up to 9 ms on a virtual machine. Arrow's system
pool does neither, and takes the memory from glibc, which returns it as ``seaweedmq.cli.servers.process`` configures.
"""

import pyarrow as pa


def allocate_buffer(size_bytes: int) -> memoryview:
    """Return a writable buffer whose content is undefined."""
    return memoryview(pa.allocate_buffer(size_bytes, memory_pool=pa.system_memory_pool())).cast("B")
