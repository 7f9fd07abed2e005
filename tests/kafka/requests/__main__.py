"""``python -m tests.kafka.requests [API ...]``: send every API in every version that a broker answers, with good and
with bad fields, to an Apache Kafka, which Maven brings, and to SeaweedMQ, and print where their answers differ.

Needs Java 17 and Maven. Exit status 1 if a difference is not among those that are meant (``meant.py``). It takes
minutes; no test runs it.
"""

import asyncio
import itertools
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from seaweedmq.kafka.wire.messages import API
from seaweedmq.kafka.wire.versions import ADVERTISED, name_of
from seaweedmq.runtime.process.free_ports import ReservedPort
from tests.kafka.differential.messages import Names
from tests.kafka.differential.play import awaited, playing
from tests.kafka.differential.recorder import OneKafka
from tests.kafka.differential.script import AGO_MS
from tests.kafka.requests.asking import asked
from tests.kafka.requests.report import Replies, found, is_as_meant, lines

AT_ONCE = 4
"""Pairs of API and version at a time: many requests wait, few compute."""
STOP_S = 60.0


def main(only: Sequence[str]) -> int:
    """Compare, and return the exit status."""
    known = {name_of(api).lower(): api for api in ADVERTISED}
    if unknown := [name for name in only if name.lower() not in known]:
        sys.exit(f"no API is called {unknown[0]}: take one of {', '.join(name_of(api) for api in ADVERTISED)}")
    apis = [known[name.lower()] for name in only] or list(ADVERTISED)
    print(OneKafka.equip(), flush=True)
    with tempfile.TemporaryDirectory() as folder, ReservedPort() as port:
        kafka = OneKafka(Path(folder), fsync=False)
        kafka.prepare()
        command = [sys.executable, "-m", "seaweedmq.cli.main", "up", "--brokers", "1", "--data", f"{folder}/ours"]
        command += ["--port", "0", "--kafka-port", str(port.port)]
        kafka.start()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as ours:
            try:
                kafka_port = int(kafka.address.rpartition(":")[2])
                replies = asyncio.run(_both(apis, (kafka_port, port.port)))
            finally:
                kafka.stop()
                ours.send_signal(signal.SIGTERM)
                ours.wait(STOP_S)
    differences = found(*replies)
    print("\n".join(lines(differences)))
    return 0 if is_as_meant(differences) else 1


async def _versions(port: int) -> Mapping[int, range]:
    """Return the versions of each API that a broker answers: Apache Kafka 4 has fewer for old clients."""
    async with playing(port, "versions", Names(0)) as play:
        said = await play.quietly(API.API_VERSIONS, 0)
    return {each.api_key: range(each.min_version, each.max_version + 1) for each in said.api_keys}


async def _both(apis: Sequence[API], ports: tuple[int, int]) -> tuple[Replies, Replies]:
    nodes = await asyncio.gather(*(awaited(port) for port in ports))
    t0_ms = time.time_ns() // 1_000_000 - AGO_MS
    both: tuple[dict[tuple[API, int], dict[str, object]], ...] = ({}, {})
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(which: int, api: API, version: int) -> None:
        both[which][api, version] = await asked(ports[which], nodes[which], api, version, t0_ms)

    async def compare(api: API, version: int) -> None:
        async with turns:
            await asyncio.gather(*(ask(which, api, version) for which in (0, 1)))
            print(f"{name_of(api)} {version}: {len(both[0][api, version])} requests", file=sys.stderr, flush=True)

    known = await _versions(ports[0])
    pairs = [
        (api, version)
        for api in apis
        for version in range(ADVERTISED[api].lowest, ADVERTISED[api].highest + 1)
        if version in known[api]
    ]
    await asyncio.gather(*itertools.starmap(compare, pairs))
    kafka, ours = both
    return kafka, ours


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
