"""Faults of the storage: full, read-only, or not mounted, for a while."""

import asyncio
import os
from pathlib import Path

from tests.faults.machines.cluster import Cluster
from tests.faults.machines.mount import StorageMount
from tests.faults.machines.quota_broker import FILLER
from tests.faults.testbed import FaultTestbed

FILL_BYTES = 1 << 20
FULL_S = (1.0, 4.0)
AWAY_S = (0.5, 5.0)
"""Seconds shorter and longer than a lease."""


async def storage_full(testbed: FaultTestbed) -> None:
    """Fill the storage for a while. Needs a storage of its own, to spare the disk's other users."""
    async with testbed.cluster.storage_turn:
        testbed.say(await fill_storage(testbed.cluster))
        try:
            await asyncio.sleep(testbed.rng.uniform(*FULL_S))
        finally:
            await free_storage(testbed.cluster)
        testbed.say("the storage has room again")


async def storage_unmounted(testbed: FaultTestbed) -> None:
    """Unmount the storage, and remount it. No broker may create a file in the directory beneath."""
    async with testbed.cluster.storage_turn:
        mount = mount_of(testbed)
        await asyncio.to_thread(mount.unmount)
        testbed.say("the storage is not mounted")
        try:
            await asyncio.sleep(testbed.rng.uniform(*AWAY_S))
        finally:
            beneath = await asyncio.to_thread(mount.beneath)
            await asyncio.to_thread(mount.mount)
        if beneath:
            testbed.exits.append(f"{len(beneath)} files were created beneath the mount, such as {beneath[:3]}")
        testbed.say("the storage is mounted again")


async def storage_read_only(testbed: FaultTestbed) -> None:
    """Make the storage read-only for a while: no new file, no deletion. Open log files still take frames."""
    async with testbed.cluster.storage_turn:
        mount = mount_of(testbed)
        await asyncio.to_thread(_remount, mount, read_only=True)
        testbed.say("the storage is read-only")
        try:
            await asyncio.sleep(testbed.rng.uniform(*AWAY_S))
        finally:
            await asyncio.to_thread(_remount, mount, read_only=False)
        testbed.say("the storage takes changes again")


def mount_of(testbed: FaultTestbed) -> StorageMount:
    """Return the mount of the cluster's storage, which must have one."""
    assert testbed.cluster.mount is not None, "see faults.NEEDS_MOUNT"
    return testbed.cluster.mount


def _remount(mount: StorageMount, *, read_only: bool) -> None:
    mount.unmount()
    if read_only:
        mount.mount_read_only()
    else:
        mount.mount()


def filler(cluster: Cluster) -> Path:
    return cluster.storage / FILLER


async def fill_storage(cluster: Cluster) -> str:
    """Make the storage reject writes; return the method."""
    if cluster.mount is not None:
        filled = await asyncio.to_thread(_fill, filler(cluster))
        return f"the storage is full, {filled >> 20} MiB of it are of others"
    await asyncio.to_thread(filler(cluster).touch)
    return "the storage takes no byte more"


async def free_storage(cluster: Cluster) -> None:
    await asyncio.to_thread(filler(cluster).unlink, missing_ok=True)


def _fill(path: Path) -> int:
    size, chunk = 0, FILL_BYTES
    with path.open("wb", buffering=0) as file:
        while chunk:
            try:
                os.posix_fallocate(file.fileno(), size, chunk)
                size += chunk
            except OSError:
                chunk //= 2
    return size
