"""Operations on etcd's data with etcd's own tools: backup, restore, loss, and quota."""

import asyncio
import itertools
import json
import shutil
from pathlib import Path
from typing import Any

from seaweedmq.coordination.local import LocalEtcd, etcd_binary

FOREIGN_KEYS = "/others/"
"""Prefix of keys that belong to no broker."""
FOREIGN_VALUE_BYTES = 1 << 20
TIMEOUT_S = 60.0


class EtcdToolError(Exception):
    """A tool failed; the message is the tool's."""


class EtcdData:
    def __init__(self, etcd: LocalEtcd, directory: Path) -> None:
        self._etcd = etcd
        self._directory = directory
        self._backups = itertools.count()

    async def back_up(self) -> Path:
        """Save a snapshot of the running etcd; return its file."""
        backup = self._directory / f"backup-{next(self._backups)}.db"
        await self._control("snapshot", "save", str(backup))
        return backup

    async def restore(self, backup: Path) -> None:
        """Replace etcd by one with the content of a snapshot, at the same address."""
        await self._etcd.kill()
        await asyncio.to_thread(shutil.rmtree, self._data)
        host, port = self._etcd.endpoint.rsplit(":", 1)
        peer = f"http://{host}:{int(port) + 1}"
        await _run(
            *(str(etcd_binary().with_name("etcdutl")), "snapshot", "restore", str(backup)),
            *("--data-dir", str(self._data), "--name", "local"),
            *("--initial-cluster", f"local={peer}", "--initial-advertise-peer-urls", peer),
        )
        await self._etcd.start()

    async def lose(self) -> None:
        """Replace etcd by one without any data, at the same address."""
        await self._etcd.kill()
        await asyncio.to_thread(shutil.rmtree, self._data)
        await self._etcd.start()

    async def fill(self, keys_max: int) -> int:
        """Write foreign keys until etcd is out of space; return their number."""
        value = "x" * (FOREIGN_VALUE_BYTES - 100)
        for number in range(keys_max):
            try:
                await self._control("put", f"{FOREIGN_KEYS}{number}", stdin=value)
            except EtcdToolError as error:
                if "database space exceeded" in str(error):
                    return number
                raise
        raise EtcdToolError(f"etcd takes {keys_max} MiB of keys: give it a smaller quota")

    async def make_room(self) -> None:
        """Delete these keys, compact, defragment and end the alarm, as etcd's documentation says. Harmless without an
        alarm."""
        await self._control("del", "--prefix", FOREIGN_KEYS)
        await self._control("compaction", "--physical", str(await self.revision()))
        await self._control("defrag")
        await self._control("alarm", "disarm")

    async def revision(self) -> int:
        status: Any = json.loads(await self._control("endpoint", "status", "--write-out", "json"))
        return int(status[0]["Status"]["header"]["revision"])

    @property
    def _data(self) -> Path:
        return self._directory / "data"

    async def _control(self, *arguments: str, stdin: str = "") -> str:
        tool = str(etcd_binary().with_name("etcdctl"))
        return await _run(tool, "--endpoints", self._etcd.endpoint, "--command-timeout", "30s", *arguments, stdin=stdin)


async def _run(*command: str, stdin: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(TIMEOUT_S):
        out, complaint = await process.communicate(stdin.encode())
    if process.returncode != 0:
        raise EtcdToolError(f"`{' '.join(command[:6])} ...` ended with {process.returncode}: {complaint.decode()}")
    return out.decode()
