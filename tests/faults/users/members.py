"""Members of a consumer group of any kind as processes that tests kill, freeze and replace."""

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from tests.faults.machines.cluster import ROOT
from tests.support.history import Violation

JOIN_TIMEOUT_S = 60.0
LOOK_S = 0.05
LEAVE_TIMEOUT_S = 30.0


@dataclass(slots=True, eq=False)
class Member:
    name: str
    process: asyncio.subprocess.Process
    path: Path
    """File with its notes."""
    errors: Path
    """File with its stderr."""
    is_ready: asyncio.Task[bool]
    """Task that returns whether it became a member."""
    read_bytes: int = 0


@dataclass(slots=True, kw_only=True)
class Members:
    """Members as an async context manager, which kills those that still live in the end.

    A member is a process that prints ``ready`` once it is one, appends lines to its file, and leaves on SIGTERM.
    """

    directory: Path
    bootstrap: str
    name: str
    topics: Sequence[str]
    session_s: float
    """Seconds of silence after which a member is replaced."""
    delivered: dict[str, list[Any]] = field(init=False)
    """Delivered records by topic, each with its ``brief`` value."""
    members: list[Member] = field(default_factory=list)
    """Members believed to be alive."""
    deaths_ns: dict[str, int] = field(default_factory=dict)
    _started: int = 0
    _gone: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.delivered = {topic: [] for topic in self.topics}

    async def __aenter__(self) -> Self:
        await asyncio.to_thread(self.directory.mkdir, parents=True, exist_ok=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in list(self.members):
            await self.kill(member)

    def command(self, name: str, path: Path) -> list[str]:
        """Return a member's module and its arguments."""
        raise NotImplementedError

    def take(self, member: str, lines: list[bytes]) -> None:
        """Process lines that a member wrote."""
        raise NotImplementedError

    async def add(self, count: int = 1) -> None:
        for _ in range(count):
            self._started += 1
            name = f"m{self._started}"
            path, errors = self.directory / f"{name}.tsv", self.directory / f"{name}.err"
            with errors.open("wb") as stderr:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-m", *self.command(name, path)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=stderr,
                    cwd=ROOT,
                )
            ready = asyncio.create_task(_says_ready(process), name=f"member {name} starts")
            self.members.append(Member(name, process, path, errors, ready))

    async def until_joined(self) -> None:
        """Wait until all of them are members, or failed to become ones. Raises TimeoutError."""
        async with asyncio.timeout(JOIN_TIMEOUT_S):
            await asyncio.gather(*(member.is_ready for member in self.members))

    async def until_delivered(self, wanted: Mapping[str, Collection[bytes]], timeout_s: float) -> None:
        """Wait until the members got all these values (``brief``), by topic. Raises TimeoutError."""
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

    async def kill(self, member: Member) -> None:
        """Send SIGKILL. Its uncommitted records are delivered to others."""
        self.deaths_ns[member.name] = time.monotonic_ns()
        with contextlib.suppress(ProcessLookupError):
            member.process.kill()
        await member.process.wait()
        self._leaves(member)

    async def freeze(self, member: Member, seconds: float) -> None:
        """Send SIGSTOP, later SIGCONT. Beyond the session the member counts as dead, and rejoins as a new one."""
        self.deaths_ns[member.name] = time.monotonic_ns()
        for number in (signal.SIGSTOP, signal.SIGCONT):
            with contextlib.suppress(ProcessLookupError):
                member.process.send_signal(number)
            if number == signal.SIGSTOP:
                await asyncio.sleep(seconds)

    async def stop(self) -> list[Violation]:
        """Let every member leave; return the violations."""
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

    def collect(self) -> None:
        for member in (*self.members, *self._gone):
            if not member.path.exists():
                continue
            with member.path.open("rb") as file:
                file.seek(member.read_bytes)
                data = file.read()
            whole = data.rfind(b"\n") + 1  # an incomplete line was not acknowledged
            member.read_bytes += whole
            self.take(member.name, data[:whole].splitlines())

    def _leaves(self, member: Member) -> None:
        if member in self.members:
            self.members.remove(member)
            self._gone.append(member)


async def _says_ready(process: asyncio.subprocess.Process) -> bool:
    assert process.stdout is not None
    return await process.stdout.readline() == b"ready\n"
