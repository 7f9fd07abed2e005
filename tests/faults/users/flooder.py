"""A publisher at full speed, as a process: ``python -m tests.faults.users.flooder BOOTSTRAP TOPIC NAME FILE``.

It obeys lines on stdin: ``flood`` (as fast as the cluster accepts, keys by Zipf's law), ``trickle`` (a few records a
second) and ``end``; then it writes the outcome of every record to FILE and its measurements, as JSON, to stdout.
"""

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from tests.faults.users.member import PADDING, brief
from tests.faults.users.workload import Waits
from tests.support.history import Outcome, Sent

FLOOD, TRICKLE, END = "flood", "trickle", "end"
KEYS = 1_000
ZIPF_EXPONENT = 1.1
VALUE_BYTES = 1_000
BURST_RECORDS = 32
DRAWN_KEYS = 65_536
TRICKLE_RECORDS_PER_S = 50
CLIENT = ClientConfig(buffer_bytes_max=2 * 1024 * 1024)
"""Client with a small buffer: otherwise records would mainly wait in the publisher's queue."""
SAMPLE = 97
"""Interval of the acknowledgements that are timed for the median."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    mode: str
    records: int
    stall_s: float
    """``Waits.gap_s``."""
    median_s: float
    """Median seconds from send to acknowledgement."""


@dataclass(slots=True)
class Flooder:
    name: str
    seed: int
    keys: list[bytes] = field(default_factory=list)
    """Keys of the records, by number."""
    receipts: dict[int, tuple[int, int | None]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    waits: Waits = field(default_factory=Waits)
    took_s: list[float] = field(default_factory=list)
    mode: str = TRICKLE
    phases: list[Phase] = field(default_factory=list)

    def draw(self) -> Iterator[bytes]:
        """Draw keys without end, lower ranks more often."""
        rng = np.random.default_rng(self.seed)
        weights = np.arange(1, KEYS + 1, dtype=np.float64) ** -ZIPF_EXPONENT
        names = [f"{self.name}-key-{rank}".encode() for rank in range(KEYS)]
        while True:
            for rank in rng.choice(KEYS, DRAWN_KEYS, p=weights / weights.sum()):
                yield names[rank]

    async def run(self, publisher: aio.Publisher) -> None:
        keys = self.draw()
        while self.mode != END:
            for _ in range(BURST_RECORDS if self.mode == FLOOD else 1):
                await self._send(publisher, next(keys))
            await asyncio.sleep(0 if self.mode == FLOOD else 1 / TRICKLE_RECORDS_PER_S)
        await publisher.flush()

    def switch(self, mode: str) -> None:
        self.phases.append(
            Phase(
                mode=self.mode,
                records=len(self.keys) - sum(phase.records for phase in self.phases),
                stall_s=self.waits.gap_s,
                median_s=statistics.median(self.took_s) if self.took_s else 0.0,
            )
        )
        self.waits.gap_s = 0.0
        self.took_s.clear()
        self.mode = mode

    async def _send(self, publisher: aio.Publisher, key: bytes) -> None:
        number = len(self.keys)
        self.keys.append(key)
        value = self.value(number)
        now = time.monotonic()
        self.waits.on_send(key, now)
        sending = await publisher.send(value, key=key)
        sending.add_done_callback(partial(self._on_outcome, number, key, now))

    def _on_outcome(self, number: int, key: bytes, sent_at: float, done: "Future[aio.Receipt]") -> None:
        now = time.monotonic()
        error = done.exception()
        if error is None:
            self.receipts[number] = done.result()
        else:
            self.errors[number] = repr(error)
        self.waits.on_outcome(key, sent_at, now)
        if number % SAMPLE == 0:
            self.took_s.append(now - sent_at)

    def value(self, number: int) -> bytes:
        return f"{self.name}/{number}".encode().ljust(VALUE_BYTES, PADDING)

    def lines(self) -> Iterator[str]:
        """Yield each record's outcome: number, key, segment and offset, or the error."""
        for number, key in enumerate(self.keys):
            told = self.receipts.get(number, (self.errors.get(number, "no outcome"),))
            yield "\t".join((str(number), key.decode(), *map(str, told))) + "\n"


def read_outcomes(name: str, path: Path) -> tuple[list[Sent], list[str]]:
    """Return a flooder's records, with values ``brief``, and its errors."""
    sent, errors = [], []
    flooder = Flooder(name, 0)
    for line in path.read_text().splitlines():
        number, key, *told = line.split("\t")
        is_acked = len(told) == 2
        if not is_acked:
            errors.append(f"record {number} of {name}: {told[0]}")
        sent.append(
            Sent(
                producer=name,
                key=key.encode(),
                sequence=int(number),
                value=brief(flooder.value(int(number))),
                outcome=Outcome.ACKED if is_acked else Outcome.UNKNOWN,
                segment=int(told[0]) if is_acked else None,
                offset=int(told[1]) if is_acked and told[1] != "None" else None,
            )
        )
    return sent, errors


async def _run(bootstrap: str, topic: str, name: str, path: str) -> None:
    flooder = Flooder(name, seed=sum(name.encode()))
    async with aio.connect(bootstrap, config=CLIENT) as client, client.publisher(topic) as publisher:
        running = asyncio.create_task(flooder.run(publisher))
        print("ready", flush=True)
        while flooder.mode != END:
            flooder.switch((await asyncio.to_thread(sys.stdin.readline)).strip() or END)
        await running
    await asyncio.to_thread(Path(path).write_text, "".join(flooder.lines()))
    print(json.dumps([asdict(phase) for phase in flooder.phases]), flush=True)


if __name__ == "__main__":
    asyncio.run(_run(*sys.argv[1:]))
