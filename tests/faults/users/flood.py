"""The flood: a topic of one segment grows under publishers at full speed, and shrinks when they are done.

A group reads all of it, two of its members are killed and replaced, and the history checkers judge.
"""

import asyncio
import contextlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seaweedmq import aio
from tests.faults.machines.cluster import ROOT, Cluster
from tests.faults.users.flooder import END, FLOOD, TRICKLE, Phase, read_outcomes
from tests.faults.users.group import Group, acknowledged
from tests.faults.users.member import brief
from tests.support.history import History, Polled, Sent, Violation, check

TOPIC = "faults/flood"
PUBLISHERS = 2
MEMBERS = 4
KILLED = 2
KILL_INTERVAL_S = 2.0
SEGMENTS_MIN = 4
BROKERS = 3
TARGET_BYTES_PER_S = 1_000_000.0
"""A fortieth of the throughput of two such publishers on a small machine."""
START_TIMEOUT_S = 30.0
GROWN_TIMEOUT_S = 60.0
SHRUNK_TIMEOUT_S = 180.0
SETTLE_TIMEOUT_S = 120.0
LOOK_S = 0.05
SETTINGS = {"merge_after_s": 4.0, "load_long_s": 4.0}
"""Settings with which shrinking is as quick as growing, so that a test can wait for it."""


@dataclass(slots=True, kw_only=True)
class FloodOutcome:
    grown_s: float = 0.0
    """Seconds from the start of the flood until there were four segments on three brokers."""
    shrunk_s: float = 0.0
    """Seconds from its end until there was one segment."""
    flood_s: float = 0.0
    segments_max: int = 0
    segments: int = 0
    """Number of segments ever created."""
    flooded: int = 0
    """Records sent in the flood."""
    stall_s: float = 0.0
    """Longest time in seconds in the flood for which a key had unacknowledged records and no acknowledgement."""
    calm_stall_s: float = 0.0
    """The same after it, while segments were merged."""
    median_s: float = 0.0
    """Median seconds from send to acknowledgement in the flood."""
    acked: int = 0
    again: int = 0
    """Records redelivered to members."""
    violations: list[Violation] = field(default_factory=list)


class Publisher:
    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.path = directory / f"{name}.tsv"
        self.phases: list[Phase] = []

    async def start(self, bootstrap: str, topic: str) -> None:
        """Start it and wait until it publishes."""
        command = [sys.executable, "-m", "tests.faults.users.flooder", bootstrap, topic, self.name, str(self.path)]
        self.process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, cwd=ROOT
        )
        async with asyncio.timeout(START_TIMEOUT_S):
            line = await self._line()
        if line != "ready":
            raise AssertionError(f"publisher {self.name} says {line!r}")

    async def tell(self, mode: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{mode}\n".encode())
        await self.process.stdin.drain()

    async def end(self) -> None:
        """Wait until all its records have an outcome."""
        await self.tell(END)
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            self.phases = [Phase(**phase) for phase in json.loads(await self._line())]
            await self.process.wait()

    async def _line(self) -> str:
        assert self.process.stdout is not None
        return (await self.process.stdout.readline()).decode().strip()

    async def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        await self.process.wait()


async def flood(cluster: Cluster, *, flood_s: float, say: Callable[[str], None] = lambda _: None) -> FloodOutcome:
    """Play the flood on a cluster that was staged with ``SETTINGS``, for ``flood_s`` or until it has grown.

    Raises:
        TimeoutError: If the topic does not grow or shrink, or a process does not settle.
    """
    outcome = FloodOutcome()
    async with await cluster.connect() as client, contextlib.AsyncExitStack() as stack:
        await client.admin.create_topic(TOPIC, durability="replicated", target_bytes_per_s=TARGET_BYTES_PER_S)
        group = Group(bootstrap=cluster.bootstrap, directory=cluster.directory / "flood", name="flood", topics=[TOPIC])
        await stack.enter_async_context(group)
        await group.add(MEMBERS)
        await group.until_joined()
        publishers = [Publisher(f"p{number}", group.directory) for number in range(PUBLISHERS)]
        for publisher in publishers:
            await publisher.start(cluster.bootstrap, TOPIC)
            stack.push_async_callback(publisher.kill)
        await _until_read_by_all(group)
        await _rise_and_fall(cluster, group, publishers, outcome, flood_s, say)
        for publisher in publishers:
            await publisher.end()
        await _judge(client, group, publishers, outcome)
    outcome.violations += [Violation("traceback", line) for line in await asyncio.to_thread(cluster.tracebacks)]
    return outcome


async def _until_read_by_all(group: Group) -> None:
    """Wait until a member reads; with one segment only one can."""
    async with asyncio.timeout(START_TIMEOUT_S):
        while not group.delivered[TOPIC]:
            await asyncio.sleep(LOOK_S)
            await asyncio.to_thread(group.collect)


async def _rise_and_fall(
    cluster: Cluster,
    group: Group,
    publishers: Sequence[Publisher],
    outcome: FloodOutcome,
    flood_s: float,
    say: Callable[[str], None],
) -> None:
    began = time.monotonic()
    say("the flood begins")
    for publisher in publishers:
        await publisher.tell(FLOOD)
    async with asyncio.TaskGroup() as tasks:
        killing = tasks.create_task(_kill_members(group, say))
        async with asyncio.timeout(GROWN_TIMEOUT_S):
            while True:
                places = await _places(cluster)
                outcome.segments_max = max(outcome.segments_max, len(places))
                if not outcome.grown_s and len(places) >= SEGMENTS_MIN and len(set(places)) == BROKERS:
                    outcome.grown_s = time.monotonic() - began
                    say(f"{len(places)} segments on {BROKERS} brokers after {outcome.grown_s:.1f} s")
                if outcome.grown_s and killing.done() and time.monotonic() - began >= flood_s:
                    break
                await asyncio.sleep(LOOK_S)
    for publisher in publishers:
        await publisher.tell(TRICKLE)
    outcome.flood_s = time.monotonic() - began
    say(f"the flood ends after {outcome.flood_s:.1f} s")
    ended = time.monotonic()
    async with asyncio.timeout(SHRUNK_TIMEOUT_S):
        while len(await _places(cluster)) > 1:  # noqa: ASYNC110 - etcd has the answer
            await asyncio.sleep(LOOK_S)
    outcome.shrunk_s = time.monotonic() - ended
    say(f"one segment after {outcome.shrunk_s:.1f} s")


async def _places(cluster: Cluster) -> list[str]:
    """Return the primaries of the open segments."""
    return [segment.primary for segment in await cluster.open_segments(TOPIC)]


async def _kill_members(group: Group, say: Callable[[str], None]) -> None:
    for _ in range(KILLED):
        await asyncio.sleep(KILL_INTERVAL_S)
        member = group.members[0]
        say(f"SIGKILL of member {member.name}")
        await group.kill(member)
        await group.add()


async def _judge(client: aio.Client, group: Group, publishers: Sequence[Publisher], outcome: FloodOutcome) -> None:
    sent: list[Sent] = []
    for publisher in publishers:
        found, errors = await asyncio.to_thread(read_outcomes, publisher.name, publisher.path)
        sent += found
        outcome.violations += [Violation("error", error) for error in errors]
    wanted = acknowledged(sent)
    with contextlib.suppress(TimeoutError):  # later rules report missing records as lost
        await group.until_delivered({TOPIC: wanted}, SETTLE_TIMEOUT_S)
    outcome.violations += await group.stop()
    outcome.violations += await asyncio.to_thread(group.check, TOPIC, sent)
    outcome.violations += await _read_all(client, sent)
    outcome.acked = len(wanted)
    outcome.again = len(group.delivered[TOPIC]) - len({d.value for d in group.delivered[TOPIC]})
    outcome.segments = len((await client.admin.describe_topic(TOPIC)).segments)
    flooded, calm = zip(*(publisher.phases[1:3] for publisher in publishers), strict=True)
    outcome.flooded = sum(phase.records for phase in flooded)
    outcome.stall_s = max(phase.stall_s for phase in flooded)
    outcome.calm_stall_s = max(phase.stall_s for phase in calm)
    outcome.median_s = max(phase.median_s for phase in flooded)


async def _read_all(client: aio.Client, sent: Sequence[Sent]) -> list[Violation]:
    """Judge the records that a plain subscriber gets in the end."""
    history = History(list(sent))
    async with asyncio.timeout(SETTLE_TIMEOUT_S):
        async with client.subscriber(TOPIC, start="earliest", stop_at="latest") as subscriber:
            async for message in subscriber:
                history.polled.append(
                    Polled(
                        reader="all",
                        segment=message.segment,
                        offset=message.offset,
                        key=message.key or b"",
                        value=brief(message.value),
                    )
                )
    return await asyncio.to_thread(check, history, complete=["all"])
