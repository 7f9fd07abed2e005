"""A consumer group whose members are processes, killed and replaced as the tests like, and what they were given."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults.machines.cluster import ROOT
from tests.faults.users.member import Line, brief
from tests.support.group_history import Delivered, GroupHistory, check_group
from tests.support.history import Outcome, Sent, Violation

LOOK_S = 0.05
JOIN_TIMEOUT_S = 60.0
LEAVE_TIMEOUT_S = 30.0


@dataclass(slots=True, eq=False)
class Member:
    """One life of one member."""

    name: str
    process: asyncio.subprocess.Process
    path: Path
    """What it was given."""
    errors: Path
    """Its stderr."""
    is_ready: asyncio.Task[bool]
    """Whether it became a member; once that is known."""
    read_bytes: int = 0


@dataclass(slots=True)
class Group:
    """Use as an async context manager; members that still live in the end are killed."""

    bootstrap: str
    directory: Path
    name: str
    topics: Sequence[str]
    members: list[Member] = field(default_factory=list)
    """Alive, as far as we know."""
    delivered: dict[str, list[Delivered]] = field(default_factory=dict)
    """By topic."""
    deaths_ns: dict[str, int] = field(default_factory=dict)
    _started: int = 0
    _gone: list[Member] = field(default_factory=list)

    async def __aenter__(self) -> "Group":
        await asyncio.to_thread(self.directory.mkdir, parents=True, exist_ok=True)
        self.delivered = {topic: [] for topic in self.topics}
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in list(self.members):
            await self.kill(member)

    async def add(self, count: int = 1) -> None:
        """Start members."""
        for _ in range(count):
            self._started += 1
            name = f"m{self._started}"
            path, errors = self.directory / f"{name}.tsv", self.directory / f"{name}.err"
            command = [sys.executable, "-m", "tests.faults.users.member", self.bootstrap, self.name, name, str(path)]
            with errors.open("wb") as stderr:
                process = await asyncio.create_subprocess_exec(
                    *(*command, *self.topics),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    cwd=ROOT,
                )
            ready = asyncio.create_task(_says_ready(process), name=f"member {name} starts")
            self.members.append(Member(name, process, path, errors, ready))

    async def until_joined(self) -> None:
        """Until all of them are members, or failed to become ones. TimeoutError."""
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            await asyncio.gather(*(member.is_ready for member in self.members))

    async def kill(self, member: Member) -> None:
        """SIGKILL. What it had and did not commit comes again to others."""
        self.deaths_ns[member.name] = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            member.process.kill()
        await member.process.wait()
        self._leaves(member)

    async def freeze(self, member: Member, seconds: float) -> None:
        """SIGSTOP, and SIGCONT. For longer than the session it is as good as dead, and comes back as somebody new."""
        self.deaths_ns[member.name] = time.monotonic_ns()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(number)
            if number == signal.SIGSTOP:
                await asyncio.sleep(seconds)

    async def stop(self) -> list[Violation]:
        """Let every member leave; what went wrong with them."""
        violations = []
        await self.until_joined()
        for member in self.members:
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(signal.SIGTERM)
        for member in list(self.members):
            try:
                async with asyncio.timeout(LEAVE_TIMEOUT_S):
                    status = await member.process.wait()
            except TimeoutError:
                violations.append(Violation("exit", f"member {member.name} does not end on SIGTERM"))
                continue
            self._leaves(member)
            if status != 0:
                said = (await asyncio.to_thread(member.errors.read_text)).strip().splitlines()[-3:]
                violations.append(Violation("error", f"member {member.name} ended with {status}: {' / '.join(said)}"))
        return violations

    async def until_delivered(self, wanted: Mapping[str, Collection[bytes]], timeout_s: float) -> None:
        """Until the members were given all these values (``brief``), by topic. TimeoutError if that does not come."""
        missing = {topic: set(values) for topic, values in wanted.items()}
        seen = dict.fromkeys(self.topics, 0)
        async with asyncio.timeout(timeout_s):
            while True:
                await asyncio.to_thread(self.collect)
                for topic, values in missing.items():
                    values.difference_update(d.value for d in self.delivered[topic][seen[topic] :])
                    seen[topic] = len(self.delivered[topic])
                if not any(missing.values()):
                    return
                await asyncio.sleep(LOOK_S)

    def collect(self) -> None:
        """Read what members wrote since the last call."""
        for member in (*self.members, *self._gone):
            if not member.path.exists():
                continue
            with member.path.open("rb") as file:
                file.seek(member.read_bytes)
                data = file.read()
            whole = data.rfind(b"\n") + 1  # a line that is not whole was not acknowledged
            member.read_bytes += whole
            for line in map(Line.decode, data[:whole].splitlines()):
                self.delivered[line.topic].append(
                    Delivered(
                        member=member.name,
                        at_ns=line.at_ns,
                        segment=line.segment,
                        offset=line.offset,
                        key=line.key,
                        value=line.brief,
                    )
                )

    def check(self, topic: str, sent: Sequence[Sent]) -> list[Violation]:
        """Judge, after everything was delivered. Values of ``sent`` are ``brief``."""
        self.collect()
        return check_group(GroupHistory(list(sent), self.delivered[topic], self.deaths_ns), complete=True)

    def _leaves(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            self._gone.append(member)


async def _says_ready(process: asyncio.subprocess.Process) -> bool:
    assert process.stdout is not None
    return await process.stdout.readline() == b"ready\n"


def acknowledged(sent: Sequence[Sent]) -> set[bytes]:
    """Values that must be delivered."""
    return {s.value for s in sent if s.outcome is Outcome.ACKED}


def briefly(sent: Sequence[Sent]) -> list[Sent]:
    """With values as members write them down."""
    return [replace(s, value=brief(s.value)) for s in sent]
