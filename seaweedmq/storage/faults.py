"""Conversion of operating system errors to storage errors with a remedy."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from seaweedmq.errors import StorageFailed, StorageFull

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full file system."""
GONE = frozenset({errno.ENOENT, errno.ESTALE})
"""Errors of reading a deleted file; on a network file system even an open file may fail so."""
_REMEDIES = {
    errno.ENOSPC: "free space on it or raise its size, then retry",
    errno.EDQUOT: "raise the quota or free space, then retry",
    errno.EROFS: "it is mounted read-only; mount it for writing",
    errno.EIO: "the device or server reports an I/O error; check it before trusting it again",
    errno.ENOENT: "the directory is missing; mount or restore it",
    errno.ENOTDIR: "a file is in the place of a directory; move it away",
    errno.ESTALE: "the network file system lost it; mount it again",
    errno.EACCES: f"give user {os.getuid()} permission to write",
    errno.EPERM: f"give user {os.getuid()} permission to write",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
    errno.ENFILE: "the machine has too many open files; raise fs.file-max",
}


def storage_failed(action: str, path: str, error: OSError) -> StorageFailed:
    """Return a StorageFailed, or StorageFull for lack of space, with the action, path, reason and remedy."""
    remedy = _REMEDIES.get(error.errno or 0, "repair the storage, then retry")
    kind = StorageFull if error.errno in NO_SPACE else StorageFailed
    return kind(f"cannot {action} {path}: {error.strerror or error}; {remedy}")


@contextmanager
def failing(action: str, path: object) -> Iterator[None]:
    """Convert errors of the operating system to StorageFailed."""
    try:
        yield
    except OSError as error:
        raise storage_failed(action, str(path), error) from error
