"""A client of many topics that kills a broker and records when every key range continues, as a worker of ``topics``.

It sends little, one record every 50 ms to one range after another, until it kills the broker and sends one to every
range at once. Its own CPU time for those is reported: the cluster has to wait for it.
"""

import asyncio
import contextlib
import itertools
import os
import signal
import statistics
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.processes import answer, run_worker
from seaweedmq import ClientConfig, Receipt, aio
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.broker import BrokerStatus
from seaweedmq.model.ring import WHOLE_RING, even_ranges, slot_of

BROKER, LEADER = "broker", "leader"
"""The victim: a broker that does not lead, or the one that leads."""
SEGMENTS = 4
"""Number of segments of each topic."""
TRICKLE_INTERVAL_S = 0.05
WARM_UP_S = 1.0
RECORD = b"x" * 100
LOOK_S = 0.05
WAIT_S = 60.0
"""Timeout in seconds for acknowledgements; ranges without one by then are called silent."""
CLOSE_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Failover:
    """Measurements of one kill."""

    all_s: float
    """Seconds from the kill until every key range of every topic acknowledged a record that was sent after it."""
    half_s: float
    """The same for half of the ranges."""
    silent: int
    """Ranges without one within ``WAIT_S``, which ``all_s`` is then; lost records are not counted then."""
    segments_killed: int
    """Open segments of the victim."""
    client_cpu_s: float
    """CPU time of the client in ``all_s``."""
    acknowledged: int
    """Acknowledged records, from the first to the last."""
    lost: int
    """Acknowledged records that are not below the high watermarks at the end."""
    stored_again: int
    """Records below the high watermarks, beyond those sent."""


def topic_name(number: int) -> str:
    """Return the name of one of the topics, which exist before the worker starts."""
    return f"bench/t-{number}"


def kill_and_wait(bootstrap: str, topics: int, victim: str) -> Failover:
    """Run the worker: the topics' publishers, a kill, and its measurement."""
    return Failover(**run_worker("benchmarks.failover", bootstrap=bootstrap, topics=topics, victim=victim))


def key_of_each_range() -> list[bytes]:
    """Return a key for every segment of a new topic, in the order of their ranges."""
    ranges = even_ranges(WHOLE_RING, SEGMENTS)
    keys = (b"key-%d" % number for number in itertools.count())
    found: dict[int, bytes] = {}
    while len(found) < len(ranges):
        key = next(keys)
        found.setdefault(next(n for n, slots in enumerate(ranges) if slot_of(key) in slots), key)
    return [found[number] for number in range(len(ranges))]


class _Users:
    """The publishers, one per topic."""

    def __init__(self, publishers: Sequence[aio.Publisher]) -> None:
        self._publishers = publishers
        self.places = list(itertools.product(range(len(publishers)), key_of_each_range()))
        self.acknowledged = [0] * len(publishers)
        """Number of records of each topic."""

    async def send(self, topic: int, key: bytes) -> None:
        """Send a record and wait for its acknowledgement."""
        await (await self._publishers[topic].send(RECORD, key=key))
        self.acknowledged[topic] += 1

    async def send_everywhere(self) -> list[float]:
        """Send one record to every key range; return the times of the acknowledgements by ``perf_counter``, rising.

        Those not acknowledged within ``WAIT_S`` are missing. Callbacks, not tasks: they take a fraction of
        the client's time, which counts here.
        """
        came_s: list[float] = []
        all_came = asyncio.get_running_loop().create_future()

        def on_outcome(topic: int, sent: "Future[Receipt]") -> None:
            error = sent.exception()
            if error is None:
                came_s.append(time.perf_counter())
                self.acknowledged[topic] += 1
            if error is not None and not all_came.done():
                all_came.set_exception(error)
            elif len(came_s) == len(self.places):
                all_came.set_result(None)

        for topic, key in self.places:
            sent = await self._publishers[topic].send(RECORD, key=key)
            sent.add_done_callback(partial(on_outcome, topic))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await all_came
        return came_s

    async def last_errors(self) -> list[str]:
        """Return the reasons for missing acknowledgements, one line per affected topic, of three topics at most."""
        errors: list[str] = []
        for publisher in self._publishers:
            try:
                await publisher.flush(0)
            except SeaweedMQError as error:
                errors.append(str(error))
        return errors[:3]

    async def trickle(self, ended: asyncio.Event) -> None:
        """Send a record now and then, to one range after another; return once all of them are acknowledged."""
        async with asyncio.TaskGroup() as under_way:
            for topic, key in itertools.cycle(self.places):
                if ended.is_set():
                    break
                under_way.create_task(self.send(topic, key))
                await asyncio.sleep(TRICKLE_INTERVAL_S)


async def _kill_and_wait(bootstrap: str, topics: int, victim: str) -> dict[str, Any]:
    client = await aio.connect(bootstrap, config=ClientConfig(close_timeout_s=CLOSE_TIMEOUT_S))
    outcome = await _kill(client, [topic_name(number) for number in range(topics)], victim)
    # Closing delivers the sent records, which silent ranges do not accept.
    with contextlib.suppress(*([SeaweedMQError] if outcome.silent else [])):
        await client.close()
    return asdict(outcome)


async def _kill(client: aio.Client, names: Sequence[str], victim: str) -> Failover:
    users = _Users(await asyncio.gather(*(_opened(client, name) for name in names)))
    if len(await users.send_everywhere()) < len(users.places):
        why = "; ".join(await users.last_errors())
        raise AssertionError(f"not every key range acknowledged a record within {WAIT_S:.0f} s, before any kill: {why}")
    doomed = await _find(client, victim)
    ended = asyncio.Event()
    trickling = asyncio.create_task(users.trickle(ended))
    await asyncio.sleep(WARM_UP_S)
    cpu_s, killed_s = time.process_time(), time.perf_counter()
    os.kill(doomed.info.pid, signal.SIGKILL)
    took_s = [came_s - killed_s for came_s in await users.send_everywhere()]
    cpu_s = time.process_time() - cpu_s
    silent = len(users.places) - len(took_s)
    took_s += [WAIT_S] * silent
    ended.set()
    beyond = [0]
    if silent:
        trickling.cancel()
        await asyncio.wait([trickling])
    else:
        await trickling
        beyond = [await _stored(client, name) - sent for name, sent in zip(names, users.acknowledged, strict=True)]
    return Failover(
        all_s=took_s[-1],
        half_s=statistics.median(took_s),
        silent=silent,
        segments_killed=doomed.open_segments,
        client_cpu_s=cpu_s,
        acknowledged=sum(users.acknowledged),
        lost=sum(max(0, -records) for records in beyond),
        stored_again=sum(max(0, records) for records in beyond),
    )


async def _opened(client: aio.Client, name: str) -> aio.Publisher:
    return await client.publisher(name)


async def _find(client: aio.Client, victim: str) -> BrokerStatus:
    """Return the broker to kill; of those that do not lead, the one with the most segments."""
    brokers = (await client.admin.cluster_status()).brokers
    candidates = [broker for broker in brokers if broker.is_leader == (victim == LEADER)]
    return max(candidates, key=lambda broker: broker.open_segments)


async def _stored(client: aio.Client, name: str) -> int:
    """Return the number of records of a topic, by the high watermarks of its segments once each has one.

    Nothing is split or merged, so a range's offsets continue from segment to segment."""
    async with asyncio.timeout(WAIT_S):
        while len(stats := await client.admin.topic_stats(name)) < SEGMENTS:  # noqa: ASYNC110 - brokers have the answer
            await asyncio.sleep(LOOK_S)
    return sum(segment.high_watermark for segment in stats)


if __name__ == "__main__":
    answer(_kill_and_wait)
