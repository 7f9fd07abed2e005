"""From what the operating system says to what the user should do."""

import errno
import os

from seaweedmq.errors import StorageFailed, StorageFull

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""Errors of a full file system."""
GONE = frozenset({errno.ENOENT, errno.ESTALE})
"""What reading a file that was deleted fails with: on a network file system it may do so while it is open."""
_REMEDIES = {
    errno.ENOSPC: "free space on it or raise its size, then retry",
    errno.EDQUOT: "raise the quota or free space, then retry",
    errno.EROFS: "it is mounted read-only; mount it for writing",
    errno.EIO: "the device or server reports an I/O error; check it before trusting it again",
    errno.ENOENT: "the directory vanished; mount or restore it",
    errno.ENOTDIR: "a file stands where a directory should be; move it away",
    errno.ESTALE: "the network file system lost it; mount it again",
    errno.EACCES: f"give user {os.getuid()} permission to write",
    errno.EPERM: f"give user {os.getuid()} permission to write",
    errno.EMFILE: "too many open files; raise `ulimit -n`",
    errno.ENFILE: "the machine has too many open files; raise fs.file-max",
}


def storage_failed(action: str, path: str, error: OSError) -> StorageFailed:
    """A StorageFailed with the action that failed, the path, the reason and the remedy; StorageFull for lack of
    space."""
    remedy = _REMEDIES.get(error.errno or 0, "mend the storage, then retry")
    kind = StorageFull if error.errno in NO_SPACE else StorageFailed
    return kind(f"can not {action} {path}: {error.strerror or error}; {remedy}")
