"""A Redis server that keeps everything in memory and in the append-only file, without snapshots."""

import itertools
import subprocess
from importlib.metadata import version

from benchmarks.contest.server import Server, require_module, require_program


class RedisServer(Server):
    """``redis-server`` from PATH."""

    @classmethod
    def equip(cls) -> str:
        require_program("redis-server")
        require_module("redis")
        require_module("hiredis")
        said = subprocess.run(["redis-server", "--version"], capture_output=True, text=True, check=True).stdout
        number = said.split("v=")[1].split()[0]
        return f"Redis {number}, redis-py {version('redis')}, hiredis {version('hiredis')}"

    def command(self) -> list[str]:
        host, _, port = self.address.rpartition(":")
        options = {
            "--bind": host,
            "--port": port,
            "--dir": str(self.folder),
            "--appendonly": "yes",
            "--appendfsync": "always" if self.fsync else "everysec",
            "--save": "",
        }
        return ["redis-server", *itertools.chain.from_iterable(options.items())]
