"""Clients of other versions than the environment's: in a separate process, with their packages in a separate folder.

As a program, it reads a pickled call from stdin and writes the pickled result to stdout.
"""

import importlib
import os
import pickle
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
PACKAGES: Mapping[str, tuple[str, ...]] = {
    "librdkafka 2.0": ("confluent-kafka==2.0.2",),
    "kafka-python": ("python-snappy==0.7.3", "lz4==4.4.5", "zstandard==0.25.0"),
}
"""Packages of each client: an old librdkafka, and the codecs of kafka-python."""
INSTALL_TIMEOUT_S = 100
CALL_TIMEOUT_S = 60


class NotInstallable(Exception):
    """A client that pip cannot install; the message has the reason."""


def install(client: str, folder: Path) -> None:
    """Install the packages of a client in a folder, unless they are there.

    Raises:
        NotInstallable: If the registry is unreachable, or has nothing for this Python.
    """
    packages = PACKAGES[client]
    done, wanted = folder / "installed", "\n".join(packages)
    if done.exists() and done.read_text() == wanted:
        return
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--only-binary=:all:"]
    command += ["--no-deps", "--upgrade", "--target", str(folder), *packages]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise NotInstallable(f"pip did not install {' '.join(packages)} in {INSTALL_TIMEOUT_S} s") from None
    except subprocess.CalledProcessError as error:
        raise NotInstallable(f"pip cannot install {' '.join(packages)}: {error.stderr.strip()[-300:]}") from None
    done.write_text(wanted)


def call(folder: Path, module: str, function: str, *arguments: Any, **settings: Any) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=pickle.dumps((module, function, arguments, settings)),
        capture_output=True,
        check=False,
        timeout=CALL_TIMEOUT_S,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))},
    )
    assert done.returncode == 0, done.stderr.decode()
    return pickle.loads(done.stdout)


def main() -> None:
    module, function, arguments, settings = pickle.load(sys.stdin.buffer)
    result = getattr(importlib.import_module(module), function)(*arguments, **settings)
    sys.stdout.buffer.write(pickle.dumps(result))


if __name__ == "__main__":
    main()
