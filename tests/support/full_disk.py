"""Simulation of a full disk without a mount: a limit on the size of files, which fails writes as a full disk does."""

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def full_disk(file_bytes_max: int) -> Iterator[None]:
    """Limit the size in bytes of this process's files. Python ignores the signal, so that writes raise."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def tree(root: Path) -> dict[str, int]:
    """Return all files below a directory, by path, with their sizes."""
    return {str(path.relative_to(root)): path.stat().st_size for path in root.rglob("*") if path.is_file()}
