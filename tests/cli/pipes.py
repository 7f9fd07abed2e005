"""A pipe as a source of records."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from seaweedmq.cli.records.source import Source


@contextmanager
def piped(*parts: bytes) -> Iterator[Source]:
    """Open a pipe to which a writer sends these parts."""
    read_fd, write_fd = os.pipe()

    def write() -> None:
        with os.fdopen(write_fd, "wb", buffering=0) as end:
            end.writelines(parts)

    writer = threading.Thread(target=write)
    writer.start()
    with os.fdopen(read_fd, "rb") as file:
        yield Source("stdin", file, None)
    writer.join()
