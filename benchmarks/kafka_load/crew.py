"""The clients of a run, each a process: groups that stay, and producers of one phase."""

import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contest.errors import Failed
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.kafka_load.checker import Promise, Verdict, judge
from benchmarks.kafka_load.consuming import Consumed, consume
from benchmarks.kafka_load.journal import Rows, read_journal
from benchmarks.kafka_load.producing import Produced, produce
from benchmarks.kafka_load.servers import Servers
from benchmarks.kafka_load.tiers import Group, Tier

LOOK_S = 0.05
ASSIGN_TIMEOUT_S = 60.0
QUIET_S = 1.0
"""Seconds without a record after which a complete group has caught up, repeats included."""
STUCK_S = 30.0
"""Seconds without a record after which the rest of a group's records are lost."""
LEAVE_TIMEOUT_S = 60.0


@dataclass(slots=True)
class Member:
    """A consumer process, running or ended."""

    group: Group
    journal: Path
    process: ClientProcess[Consumed]
    progress: Any
    """Its current partitions, and its delivered records."""
    stop: Any
    is_here: bool = True

    @property
    def partitions(self) -> int:
        return int(self.progress[0]) if self.is_here else 0


@dataclass(slots=True)
class Crew(contextlib.AbstractContextManager["Crew"]):
    """Clients of a run, a context manager: leaving the block ends all processes."""

    servers: Servers
    topic: str
    tier: Tier
    folder: Path
    members: list[Member] = field(default_factory=list)
    produced: list[Produced] = field(default_factory=list)
    damaged: int = 0
    examples: list[str] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    """Errors of all clients, by name."""
    churns: int = 0
    _numbers: Any = field(default_factory=itertools.count)
    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __exit__(self, *details: Any) -> None:
        self._stack.__exit__(*details)

    # --- consumers ----------------------------------------------------------------------------------------------------

    def join(self) -> None:
        """Start all groups, and wait until each has the whole topic. Raises Failed if one does not in time."""
        for group in self.tier.groups:
            for _ in range(group.members):
                self._start(group)
        self.until_assigned()

    def add_member(self) -> None:
        """Add a member to the first group."""
        self._start(self.tier.groups[0])

    def churn(self) -> None:
        """Add a member to one group, and once it has its share let the oldest leave; the groups take turns.

        Not both at once: librdkafka that is closed during a rebalance of others leaves the group first, and its last
        commit is then an unknown member's, with Apache Kafka also: its last records are delivered again.

        Raises:
            Failed: If the group does not become stable in time.
        """
        group = self.tier.groups[self.churns % len(self.tier.groups)]
        self.churns += 1
        eldest = next(member for member in self.members if member.group is group and member.is_here)
        self._start(group)
        newest = self.members[-1]
        _until(lambda: newest.partitions > 0 and self._is_whole(group), ASSIGN_TIMEOUT_S, f"{group.name} is not shared")
        self._leave([eldest])

    def until_assigned(self) -> None:
        """Wait until the groups have all partitions. Raises Failed."""
        groups = self.tier.groups
        _until(lambda: all(map(self._is_whole, groups)), ASSIGN_TIMEOUT_S, "the groups do not have all partitions")

    def drain(self) -> None:
        """Return when every group has all records, or gets no more."""
        wanted = sum(one.sent - len(one.refused) for one in self.produced)
        moved_s = time.monotonic()
        before = self._given()
        while True:
            time.sleep(LOOK_S)
            now_s, given = time.monotonic(), self._given()
            if given != before:
                before, moved_s = given, now_s
            patience_s = QUIET_S if min(given) >= wanted else STUCK_S
            if now_s - moved_s > patience_s:
                return

    def leave(self) -> None:
        """Let all members commit and leave."""
        self._leave([member for member in self.members if member.is_here])

    # --- producers ----------------------------------------------------------------------------------------------------

    def produce(
        self, producers: int, records_per_s: float, seconds: float, tick: Callable[[float], None]
    ) -> list[Produced]:
        """Run so many producers, together at this rate; they begin at once.

        Args:
            tick: Called with the seconds since the beginning, several times a second.

        Raises:
            Failed: If a producer has no outcome of a record.
        """
        begin = SPAWN.Event()
        with contextlib.ExitStack() as stack:
            processes: list[ClientProcess[Produced]] = []
            readies = []
            for _ in range(producers):
                ready = SPAWN.Event()
                arguments = {"topic": self.topic, "producer": next(self._numbers), "ready": ready, "begin": begin}
                arguments |= {"records_per_s": records_per_s / producers, "linger_ms": self.tier.linger_ms}
                arguments["seconds"] = seconds
                process = ClientProcess(produce, servers=self.servers.bootstrap, **arguments)
                processes.append(stack.enter_context(process))
                readies.append(ready)
            for process, ready in zip(processes, readies, strict=True):
                process.expect(ready)
            began = time.monotonic()
            begin.set()
            while (elapsed_s := time.monotonic() - began) < seconds:
                tick(elapsed_s)
                time.sleep(LOOK_S)
            found = [process.result() for process in processes]
        for one in found:
            self.errors.update(one.errors)
        self.produced += found
        return found

    # --- what came of it ----------------------------------------------------------------------------------------------

    def verdict(self) -> Verdict:
        """Return the verdict on all groups, each compared with all producers."""
        promises = {one.producer: Promise(sent=one.sent, refused=one.refused) for one in self.produced}
        return sum((judge(promises, self.journals(group)) for group in self.tier.groups), Verdict())

    def journals(self, group: Group) -> list[Rows]:
        """Return the journals of its members, in the order in which they joined."""
        return [read_journal(member.journal) for member in self._of(group)]

    def _of(self, group: Group) -> list[Member]:
        return [member for member in self.members if member.group is group]

    def _is_whole(self, group: Group) -> bool:
        """Whether its members have all partitions."""
        return sum(member.partitions for member in self._of(group)) == self.tier.partitions

    def _given(self) -> list[int]:
        return [sum(int(member.progress[1]) for member in self._of(group)) for group in self.tier.groups]

    def _start(self, group: Group) -> None:
        number = len(self.members)
        progress, stop = SPAWN.RawArray("q", 2), SPAWN.Event()
        journal = self.folder / f"{group.name}-{number}.rows"
        journal.touch()
        arguments: dict[str, Any] = {"servers": self.servers.bootstrap, "topic": self.topic, "group": group.name}
        arguments |= {"strategy": group.strategy, "member": f"{group.name}-{number}", "journal": journal}
        process = ClientProcess(consume, progress=progress, stop=stop, **arguments)
        self.members.append(Member(group, journal, self._stack.enter_context(process), progress, stop))

    def _leave(self, leaving: Sequence[Member]) -> None:
        for member in leaving:
            member.stop.set()
        for member in leaving:
            found = member.process.result(LEAVE_TIMEOUT_S)
            member.is_here = False
            self.errors.update(found.errors)
            self.damaged += found.damaged
            self.examples += found.examples


def _until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            raise Failed(f"{what} after {timeout_s:.0f} s")
        time.sleep(LOOK_S)
