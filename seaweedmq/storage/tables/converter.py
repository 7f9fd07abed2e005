"""``ports.TableConverter`` for files, which runs conversions in a child process."""

import asyncio
import contextlib
import logging
import os
import random
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from typing import Any

from seaweedmq.core.clock_doubt import WallWatch, doubt_s
from seaweedmq.core.files.live_tables import TABLE_GRACE_S
from seaweedmq.errors import DeadlineExceeded, Unavailable
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.runtime.process.boot_clock import boot_s
from seaweedmq.runtime.process.wall_clock import wall_us
from seaweedmq.runtime.retrying import after_attempts, backoff, retrying
from seaweedmq.storage.place import Place
from seaweedmq.storage.tables import protocol

log = logging.getLogger(__name__)

IDLE_S = 30.0
"""Seconds without a request after which the child is ended: it holds some 70 MB."""
CONVERT_TIMEOUT_S = 600.0
"""Deadline of a request in seconds, so that a hung file system does not block other topics; 128 MiB take under 1 s."""
EXIT_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
ATTEMPTS = 3
WARNED_MAX = 1_000
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Default of the uncompressed size of a row group; see ``BrokerConfig.table_row_group_bytes``."""


class ProcessTableConverter:
    """A converter in a child process, which is started and restarted as needed and handles one request at a time."""

    def __init__(
        self,
        place: Place,
        *,
        rng: random.Random,
        cluster_id: Callable[[], str | None] = lambda: None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        table_grace_s: float = TABLE_GRACE_S,
        idle_s: float = IDLE_S,
        timeout_s: float = CONVERT_TIMEOUT_S,
        wall_us: Callable[[], int] = wall_us,
    ) -> None:
        """Create a converter without a child; unless ``cluster_id`` returns None, the place must hold its marker."""
        self._place = place
        self._cluster_id = cluster_id
        self._row_group_bytes = row_group_bytes
        self._table_grace_s = table_grace_s
        self._idle_s = idle_s
        self.timeout_s = timeout_s
        """Deadline of a request in seconds."""
        self._rng = rng
        self._wall_us = wall_us
        self._watch = WallWatch()
        """Clock watch of this process, since the child ends when idle and would restart its own."""
        self._confirmed_us()
        self._lock = asyncio.Lock()
        self._child: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._warned: dict[TopicName, str] = {}
        """Last warning on each topic whose Delta log is out of date."""

    @property
    def pid(self) -> int | None:
        """Process id of the child; None if there is none."""
        return None if self._child is None else self._child.pid

    async def convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> list[SegmentFile]:
        """Convert logs of one segment to tables, and return all tables that hold records of the logs."""
        answer = await self._answer(
            topic, protocol.CONVERT, logs=list(map(protocol.file_fields, logs)), end_offset=end_offset
        )
        return answer.tables

    async def compact(
        self, topic: Topic, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        """Merge consecutive tables of a segment, without the records below the low watermark; return the new ones."""
        fields = list(map(protocol.file_fields, tables))
        return (await self._answer(topic, protocol.COMPACT, tables=fields, low_watermark=low_watermark)).tables

    async def reconcile(self, topic: Topic) -> bool:
        """Update the topic's Delta log from its tables; return whether it is up to date."""
        return (await self._answer(topic, protocol.RECONCILE)).warning is None

    def _confirmed_us(self) -> int:
        """Return a lower bound of the current time, for entries that expire after ``table_grace_s``; microseconds."""
        steady_s = boot_s()
        self._watch.note(self._wall_us(), steady_s)
        return self._watch.confirmed_us(steady_s, doubt_s(self._table_grace_s))

    def _warn(self, name: TopicName, warning: str | None) -> None:
        """Log a warning once per reason: a damaged log stays damaged until it is rebuilt manually."""
        if warning is None:
            self._warned.pop(name, None)
        elif self._warned.get(name) != warning:
            if len(self._warned) >= WARNED_MAX:
                self._warned.clear()
            self._warned[name] = warning
            log.warning("Delta log out of date: %s: %s; retrying", name, warning)

    async def _answer(self, topic: Topic, kind: str, **fields: Any) -> protocol.Answer:
        request = protocol.encode_request(
            kind,
            self._place,
            self._cluster_id(),
            topic,
            row_group_bytes=self._row_group_bytes,
            table_grace_s=self._table_grace_s,
            confirmed_us=self._confirmed_us(),
            **fields,
        )
        async with self._lock:
            self._stop_idle_timer()
            asking = retrying(backoff(self._rng, 0.5, 0.5), on=Unavailable, stop=after_attempts(ATTEMPTS))
            line: bytes = await asking(self._ask, request)
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)
        answer = protocol.decode_answer(line)
        self._warn(topic.name, answer.warning)
        return answer

    async def close(self) -> None:
        """End the child; a running conversion is aborted and leaves only a temporary file."""
        self._stop_idle_timer()
        child, self._child = self._child, None
        if child is not None:
            await _end(child, now=True)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _ask(self, request: bytes) -> bytes:
        """Return the reply of the child, which ends if it does not reply: its next line would reply to this request."""
        if self._child is None or self._child.returncode is not None:
            self._child = await _start()
        child = self._child
        if child.stdin is None or child.stdout is None:
            raise AssertionError("the child was started with pipes")
        answered = False
        try:
            async with asyncio.timeout(self.timeout_s):
                if child.stdin.is_closing():  # uvloop reports a write to it as a bug of the caller
                    raise BrokenPipeError("it has closed its side, and its exit is not known yet")
                child.stdin.write(request)
                await child.stdin.drain()
                line = await child.stdout.readline()
            answered = line.endswith(b"\n")
        except TimeoutError:
            raise DeadlineExceeded(
                f"the table worker did not reply within {self.timeout_s:.0f} s, the log files are kept: check whether "
                "the storage hangs; retrying"
            ) from None
        except OSError as e:
            raise Unavailable(f"the table worker {child.pid} is unreachable ({e}): restarting it") from e
        finally:
            if not answered and self._child is child:
                self._child = None
                # After EOF it is ending, and its exit status shows the cause.
                await _end(child, now=not child.stdout.at_eof())
        if not answered:
            raise Unavailable(
                f"the table worker {child.pid} died with status {child.returncode} (see stderr; the kernel kills it if "
                "memory is short), the log files are kept: restarting it"
            )
        return line

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self._lock.locked():
            return  # a new request is running and resets the timer
        child, self._child = self._child, None
        if child is not None:
            task = asyncio.get_running_loop().create_task(_end(child, now=False))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


async def _start() -> Process:
    """Start a child. Raises Unavailable if the system cannot start a process."""
    try:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "seaweedmq.storage.tables.worker",
            stdin=PIPE,
            stdout=PIPE,
            limit=ANSWER_BYTES_MAX,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    except OSError as error:
        raise Unavailable(
            f"the table worker cannot be started ({error}): raise the limit of open files or of processes, and retry"
        ) from error


async def _end(child: Process, *, now: bool) -> None:
    """Close the child's stdin, which ends an idle child; kill it if ``now`` or if it does not end in time."""
    if child.stdin is not None:
        child.stdin.close()
    if not now:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EXIT_TIMEOUT_S):
                await child.wait()
    if child.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            child.kill()
        await child.wait()
