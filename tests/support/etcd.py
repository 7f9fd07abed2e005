"""A real etcd for one test, on free ports of 127.0.0.1, with fsync off."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from seaweedmq.coordination.local import LocalEtcd


@contextlib.asynccontextmanager
async def running_etcd(directory: Path) -> AsyncIterator[LocalEtcd]:
    """Start a LocalEtcd; kill it at the end, in any state."""
    etcd = LocalEtcd(directory, fsync=False)
    await etcd.start()
    try:
        yield etcd
    finally:
        await etcd.kill()
