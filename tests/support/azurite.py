"""A server of Azure's object store by azurite, which npm brings once into the cache of these tests."""

import base64
import hashlib
import hmac
import itertools
import shutil
import subprocess
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path

import pytest

from tests.integration.kafka_external.brought import CACHE, NPM, download
from tests.support.free_ports import free_ports

VERSION = "3.35.0"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Key of azurite's only account, known to all."""
API = "2021-08-06"


@dataclass(slots=True)
class Azurite:
    """A running server."""

    port: int
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def environment(self) -> dict[str, str]:
        """Return the variables of clients."""
        return {
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": f"http://127.0.0.1:{self.port}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_ALLOW_HTTP": "true",
        }

    def new_container(self) -> str:
        """Create an empty container, for which obstore has no call."""
        name, date = f"container-{next(self._numbers)}", formatdate(usegmt=True)
        signed = (
            f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{API}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        signature = base64.b64encode(hmac.digest(base64.b64decode(KEY), signed.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": API, "Authorization": f"SharedKey {ACCOUNT}:{signature}"}
        url = f"http://127.0.0.1:{self.port}/{ACCOUNT}/{name}?restype=container"
        request = urllib.request.Request(url, method="PUT", headers={**headers, "Content-Length": "0"})
        with urllib.request.urlopen(request, timeout=30) as answer:
            assert answer.status == 201
        return name


@contextmanager
def running_azurite() -> Iterator[Azurite]:
    """Run a server at a free port of 127.0.0.1, or skip the test with the reason."""
    program = _brought() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    port = free_ports(1)
    command = ["node", str(program), "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
    with subprocess.Popen(
        [*command, "--blobHost", "127.0.0.1", "--blobPort", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            said = []
            for line in process.stdout:
                said.append(line)
                if "successfully listens" in line:
                    break
            else:
                raise AssertionError(f"azurite did not start: {''.join(said)}")
            yield Azurite(port)
        finally:
            process.terminate()


def _brought() -> Path:
    for program in ("node", "npm"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not on PATH")
    folder = CACHE / f"azurite-{VERSION}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as beside:
            whole = Path(beside) / "whole"
            whole.mkdir()
            options = ["--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(whole)]
            download(NPM, ["npm", "install", *options, f"azurite@{VERSION}"])
            try:
                whole.rename(folder)
            except OSError:
                if not folder.is_dir():  # another run was first
                    raise
    return folder
