"""A storage mount that can be unmounted, remounted, made read-only and filled.

The storage is a bind mount of a tmpfs. Both lie below a shared mount, so that brokers in namespaces of their own see
each change: ``ip netns exec`` gives its process a copy of all mounts, which receives changes of shared ones.
"""

import contextlib
import subprocess
from pathlib import Path

from tests.faults.machines.network import Unsupported


class StorageMount:
    """A file system of its own for the storage. Blocking; each call takes milliseconds."""

    def __init__(self, directory: Path, size_mib: int) -> None:
        self._root = directory / "mounts"
        self._disk = self._root / "disk"
        self._size_mib = size_mib
        self.path = self._root / "storage"
        """The directory in which brokers find the storage."""

    def create(self) -> None:
        """Mount everything.

        Raises:
            Unsupported: If this machine does not allow mounts.
        """
        self._root.mkdir(parents=True, exist_ok=True)
        _mount("--bind", str(self._root), str(self._root))
        try:
            _mount("--make-shared", str(self._root))
            self._disk.mkdir()
            self.path.mkdir()
            _mount("-t", "tmpfs", "-o", f"size={self._size_mib}m", "tmpfs", str(self._disk))
            self.mount()
        except Unsupported:
            self.close()
            raise

    def close(self) -> None:
        self.unmount()
        for place in (self._disk, self._root):
            subprocess.run(["umount", "--lazy", str(place)], capture_output=True, check=False)

    @property
    def is_mounted(self) -> bool:
        return self.path.is_mount()

    def mount(self) -> None:
        _mount("--bind", str(self._disk), str(self.path))

    def mount_read_only(self) -> None:
        """Mount the storage read-only. Files opened through another mount stay writable.

        A bind mount inherits its source's flags, and its copies inherit its own; changed flags reach no copy.
        """
        source = self._root / "read-only"
        source.mkdir(exist_ok=True)
        _mount("--bind", str(self._disk), str(source))
        try:
            _mount("-o", "remount,bind,ro", str(source))
            _mount("--bind", str(source), str(self.path))
        finally:
            subprocess.run(["umount", "--lazy", str(source)], capture_output=True, check=False)

    def unmount(self) -> None:
        """Unmount the storage, with files open; the empty directory beneath is left."""
        while self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=True)

    def beneath(self) -> list[str]:
        """List and remove files in the directory beneath the mount, which must be unmounted."""
        found = sorted(path for path in self.path.rglob("*") if not path.is_dir())
        for path in found:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
        return [str(path.relative_to(self.path)) for path in found]


def _mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unsupported(f"`mount {' '.join(arguments)}` is refused: {done.stderr.strip()}")
