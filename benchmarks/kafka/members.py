"""Claims: 1,000 members of one group have joined and know their share after 3 s, and their heartbeats cost 5 % of a
core.

Each member is a connection that speaks the classic protocol as clients do: it joins without an id, again with the one
of the answer, and again at every rebalance; the leader assigns the partitions.
"""

import asyncio
import resource
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.cluster import running_cluster, scratch
from benchmarks.contest.errors import Failed
from benchmarks.kafka.commits import find_coordinator
from benchmarks.kafka.wire import Talk
from benchmarks.measure import Measure, compared, yardstick
from benchmarks.processes import CORE, answer, cpu_s, run_worker
from benchmarks.scale import Scale
from seaweedmq.kafka.wire.messages import API, JoinGroupRequest, SyncGroupRequest
from seaweedmq.model.kafka.codes import Code

MEMBERS, MEMBERS_QUICK = 1_000, 100
STABLE_S_MAX = 3.0
HEARTBEAT_PERCENT_MAX = 5.0
HEARTBEAT_S = 3.0
"""Default interval of Kafka clients."""
SESSION_MS, REBALANCE_MS = 45_000, 60_000
JOINING_S = 0.2
"""Seconds between heartbeats while others are still joining."""
PATIENCE_S = 60.0
FILES = 8_192
GROUP = "thousand"
JOIN, SYNC, HEARTBEAT = 5, 3, 3
"""Versions of the requests."""
PING = "the same connections, pinged once"


def run(scale: Scale) -> list[Measure]:
    """Measure on one broker with one replica."""
    _raise_limit()  # brokers inherit this limit
    members = MEMBERS_QUICK if scale.quick else MEMBERS
    with scratch(scale.directory) as folder, running_cluster(folder / "data", kafka=True) as cluster:
        (pid,) = cluster.pids
        arguments = {"bootstrap": cluster.kafka, "members": members, "pid": pid, "seconds": scale.idle_s}
        found = run_worker("benchmarks.kafka.members", **arguments)
    details = {"members": members, "generations": found["generations"]}
    ping_s, percent = [found["ping_s"]], [found["percent"]]
    return [
        yardstick(PING, ping_s, "s"),
        compared("kafka_join_to_stable", [found["stable_s"]], "s", PING, ping_s, value_max=STABLE_S_MAX, **details),
        yardstick(CORE, [100.0], "%"),
        compared("kafka_heartbeats_cpu", percent, "%", CORE, [100.0], value_max=HEARTBEAT_PERCENT_MAX, **details),
    ]


@dataclass(slots=True)
class _Group:
    """Shared knowledge of the members, which are one process."""

    size: int
    stable: asyncio.Event = field(default_factory=asyncio.Event)
    generations: dict[int, int] = field(default_factory=dict)
    """Member -> generation whose share it has."""

    def has(self, number: int, generation: int) -> None:
        self.generations[number] = generation
        if len(self.generations) == self.size and len(set(self.generations.values())) == 1:
            self.stable.set()

    def lacks(self, number: int) -> None:
        self.generations.pop(number, None)


class _Member:
    """One connection. ``live`` runs until it is cancelled."""

    def __init__(self, number: int, talk: Talk, group: _Group) -> None:
        self._number = number
        self._talk = talk
        self._group = group
        self._id = ""

    async def ping(self) -> None:
        """Send a request that costs the coordinator nothing."""
        await self._talk.ask(API.API_VERSIONS, 0)

    async def live(self) -> None:
        """Join, and send heartbeats; join again at every rebalance."""
        while True:
            if (generation := await self._join()) is None:
                continue
            self._group.has(self._number, generation)
            await self._beat(generation)
            self._group.lacks(self._number)

    async def _join(self) -> int | None:
        """Return the generation, None if there was another rebalance meanwhile."""
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(version=JOIN, name="range", metadata=b"\0" * 16)
        reply = await self._talk.ask(
            API.JOIN_GROUP,
            JOIN,
            group_id=GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._id,
            group_instance_id=None,
            protocol_type="consumer",
            protocols=[protocol],
        )
        if reply.error_code == Code.MEMBER_ID_REQUIRED:
            self._id = reply.member_id
            return None
        _check(API.JOIN_GROUP, reply.error_code)
        self._id = reply.member_id
        make = SyncGroupRequest.SyncGroupRequestAssignment
        shares = [make(version=SYNC, member_id=member.member_id, assignment=b"\0" * 24) for member in reply.members]
        synced = await self._talk.ask(
            API.SYNC_GROUP,
            SYNC,
            group_id=GROUP,
            generation_id=reply.generation_id,
            member_id=self._id,
            group_instance_id=None,
            assignments=shares if reply.leader == self._id else [],
        )
        if synced.error_code == Code.REBALANCE_IN_PROGRESS:
            return None
        _check(API.SYNC_GROUP, synced.error_code)
        return int(reply.generation_id)

    async def _beat(self, generation: int) -> None:
        """Send heartbeats until the next rebalance."""
        while True:
            is_stable = self._group.stable.is_set()
            await asyncio.sleep(HEARTBEAT_S if is_stable else JOINING_S)
            reply = await self._talk.ask(
                API.HEARTBEAT,
                HEARTBEAT,
                group_id=GROUP,
                generation_id=generation,
                member_id=self._id,
                group_instance_id=None,
            )
            if reply.error_code == Code.REBALANCE_IN_PROGRESS:
                return
            _check(API.HEARTBEAT, reply.error_code)


def _check(api: API, error: int) -> None:
    if error:
        raise Failed(f"{api.name} says {Code(error).name}")


async def _gather(bootstrap: str, members: int, pid: int, seconds: float) -> dict[str, Any]:
    """Run the worker; return seconds until all are stable, and CPU of the broker in so many seconds afterwards."""
    address = await find_coordinator(bootstrap, GROUP)
    group = _Group(members)
    talks = [await Talk.open(address) for _ in range(members)]
    everybody = [_Member(number, talk, group) for number, talk in enumerate(talks)]
    began = time.perf_counter()
    await asyncio.gather(*(member.ping() for member in everybody))
    ping_s = time.perf_counter() - began
    began = time.perf_counter()
    lives = [asyncio.create_task(member.live()) for member in everybody]
    stable = asyncio.create_task(group.stable.wait())
    async with asyncio.timeout(PATIENCE_S):
        await asyncio.wait([stable, *lives], return_when=asyncio.FIRST_COMPLETED)
    _raise_first(lives)
    stable_s = time.perf_counter() - began
    await asyncio.sleep(HEARTBEAT_S)  # the faster heartbeats have ended
    before_s, began = cpu_s(pid), time.perf_counter()
    await asyncio.sleep(max(seconds, 2 * HEARTBEAT_S))
    percent = 100 * (cpu_s(pid) - before_s) / (time.perf_counter() - began)
    _raise_first(lives)
    if len(group.generations) != members:
        raise Failed(f"the group of {members} changed: {members - len(group.generations)} joined again")
    for life in lives:
        life.cancel()
    await asyncio.wait(lives)
    for talk in talks:
        talk.close()
    (generation,) = set(group.generations.values())
    return {"stable_s": stable_s, "ping_s": ping_s, "percent": percent, "generations": generation}


def _raise_first(lives: list["asyncio.Task[None]"]) -> None:
    for life in lives:
        if life.done():
            life.result()


def _raise_limit() -> None:
    """Raise the limit of open files to the hard limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(FILES, hard), hard))


if __name__ == "__main__":
    answer(_gather)
