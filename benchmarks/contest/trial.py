"""One server, alone on the machine and on an empty folder, and the work with it."""

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.contest import tasks
from benchmarks.contest.client import Topic
from benchmarks.contest.errors import Failed
from benchmarks.contest.feed import Schedule
from benchmarks.contest.process import SPAWN, ClientProcess
from benchmarks.contest.results import Figures, Sample
from benchmarks.contest.systems import SYSTEMS, System
from benchmarks.contest.tasks import Target
from benchmarks.contest.watch import cpu_s

START_TIMEOUT_S = 90.0
SETTLE_TIMEOUT_S = 15.0
SETTLE_LOOK_S = 0.25
SETTLE_CORE_SHARE = 0.05


class Trial:
    """A running server in one round, which has taken its first record.

    Args:
        turn: Number of the round.
        first_record_s: Seconds from starting the server to the first acknowledged record.
    """

    def __init__(self, turn: int, target: Target, first_record_s: float) -> None:
        self.first_record_s = first_record_s
        self._turn = turn
        self._target = target

    @property
    def system(self) -> System:
        """The tested system."""
        return SYSTEMS[self._target.system]

    def sample(self, measure: str, call: str, figures: Figures) -> Sample:
        """Round each figure to five digits, above the precision of a run. Counts stay exact."""
        rounded = {name: value if isinstance(value, int) else float(f"{value:.5g}") for name, value in figures.items()}
        return Sample(self._turn, self._target.system, measure, call, rounded)

    def do(self, work: Callable[..., Figures], **arguments: Any) -> Figures:
        """Run one of ``tasks`` in a separate process. Raises Failed."""
        with ClientProcess(work, target=self._target, **arguments) as process:
            return process.result()

    @contextlib.contextmanager
    def topics(self, topics: Sequence[Topic]) -> Iterator[Figures]:
        """Create topics for the time of the block; yield the duration of their creation."""
        created = self.do(tasks.create, topics=topics)
        self._settle()
        yield created
        self.do(tasks.delete, topics=topics)

    def publish(self, topic: Topic, call: str, record_bytes: int, seconds: float) -> Figures:
        """Publish for some seconds."""
        return self.do(tasks.publish, topic=topic, call=call, record_bytes=record_bytes, seconds=seconds)

    def consume(self, topic: Topic, call: str, record_bytes: int, count: int) -> Figures:
        """Consume all records, once the server rests."""
        self._settle()
        return self.do(tasks.consume, topic=topic, call=call, record_bytes=record_bytes, count=count)

    def deliver(self, topic: Topic, schedule: Schedule) -> Figures:
        """Send by a schedule in one process, and receive in another."""
        ready = SPAWN.Event()
        arguments = {"target": self._target, "topic": topic, "schedule": schedule, "ready": ready}
        with ClientProcess(tasks.receive, **arguments) as receiver:
            receiver.expect(ready)
            sent = self.do(tasks.send, topics=[topic], schedule=schedule)
            return receiver.result() | sent

    def _settle(self) -> None:
        """Wait until server and disk are idle, up to a limit."""
        os.sync()
        end = time.monotonic() + SETTLE_TIMEOUT_S
        while time.monotonic() < end:
            before_s = cpu_s(self._target.pids)
            time.sleep(SETTLE_LOOK_S)
            if cpu_s(self._target.pids) - before_s < SETTLE_CORE_SHARE * SETTLE_LOOK_S:
                return


@contextlib.contextmanager
def trial(system: str, turn: int, *, fsync: bool, directory: Path) -> Iterator[Trial]:
    """Start a server while a client waits for it; end it afterwards and delete its data. Raises Failed."""
    with tempfile.TemporaryDirectory(prefix="peers-", dir=directory) as folder:
        server = SYSTEMS[system].server(Path(folder), fsync=fsync)
        server.prepare()
        target = Target(system, server.address, fsync)
        ready = SPAWN.Event()
        try:
            with ClientProcess(tasks.first_record, target=target, ready=ready) as waiting:
                waiting.expect(ready)
                began_ns = time.monotonic_ns()
                server.start()
                first_record_s = (waiting.result(START_TIMEOUT_S)["at_ns"] - began_ns) / 1e9
            yield Trial(turn, Target(system, server.address, fsync, server.pids()), first_record_s)
        except Failed:
            print(server.log_end(), file=sys.stderr)
            raise
        finally:
            server.stop()
