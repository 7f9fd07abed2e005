"""``ports.TableConverter`` for files: the parent of the child process that converts."""

import asyncio
import contextlib
import logging
import os
import random
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from pathlib import Path

from seaweedmq.core.clock_doubt import WallWatch, doubt_s
from seaweedmq.core.files.live_tables import TABLE_GRACE_S
from seaweedmq.errors import DeadlineExceeded, Unavailable
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.runtime.process.boot_clock import boot_s
from seaweedmq.runtime.retrying import after_attempts, backoff, retrying
from seaweedmq.storage.tables.protocol import (
    Answer,
    decode_answer,
    encode_compaction,
    encode_conversion,
    encode_reconciliation,
)

log = logging.getLogger(__name__)

IDLE_S = 30.0
"""The child holds some 70 MB: it is ended when there was nothing to convert for this long."""
CONVERT_TIMEOUT_S = 600.0
"""128 MiB take under a second; a hung file system must not hold up every other topic for ever."""
EXIT_TIMEOUT_S = 5.0
ANSWER_BYTES_MAX = 16 * 1024 * 1024
ATTEMPTS = 3
WARNED_MAX = 1_000
ROW_GROUP_BYTES = 16 * 1024 * 1024
"""Uncompressed; ``BrokerConfig.table_row_group_bytes`` says otherwise."""


class ProcessTableConverter:
    """Converts in a child process, one request at a time; starts it when needed or dead, ends it when idle."""

    def __init__(
        self,
        root: Path,
        *,
        rng: random.Random,
        cluster_id: Callable[[], str | None] = lambda: None,
        row_group_bytes: int = ROW_GROUP_BYTES,
        table_grace_s: float = TABLE_GRACE_S,
        idle_s: float = IDLE_S,
        timeout_s: float = CONVERT_TIMEOUT_S,
    ) -> None:
        """``cluster_id`` returns the id of the cluster whose marker the root has to hold; None to require none."""
        self._root = root
        self._cluster_id = cluster_id
        self._row_group_bytes = row_group_bytes
        self._table_grace_s = table_grace_s
        self._idle_s = idle_s
        self.timeout_s = timeout_s
        """Of one request."""
        self._rng = rng
        self._watch = WallWatch()
        """Watch of this process: the child ends when it is idle, and would start a new one each time."""
        self._confirmed_us()
        self._turn = asyncio.Lock()
        self._child: Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self._warned: dict[TopicName, str] = {}
        """What was said last of a topic's Delta log that is not in line."""

    @property
    def pid(self) -> int | None:
        """Of the child, if there is one."""
        return None if self._child is None else self._child.pid

    async def convert(self, topic: Topic, logs: Sequence[SegmentFile], end_offset: int | None) -> list[SegmentFile]:
        """As the port says.

        Raises:
            Corrupt, NotFound, StorageFailed: as ``convert.convert_logs``.
            Unavailable: the child died, three times.
            DeadlineExceeded: it did not answer.
        """
        return await self._tables(
            topic,
            encode_conversion(
                self._root,
                self._cluster_id(),
                topic,
                logs,
                end_offset,
                row_group_bytes=self._row_group_bytes,
                table_grace_s=self._table_grace_s,
                confirmed_us=self._confirmed_us(),
            ),
        )

    async def compact(
        self, topic: Topic, tables: Sequence[SegmentFile], *, low_watermark: int = 0
    ) -> list[SegmentFile]:
        """As the port says.

        Raises:
            Corrupt, NotFound, StorageFailed: as ``compact.compact_tables``.
            Unavailable: another process is at it, or the child died, three times.
            DeadlineExceeded: it did not answer.
        """
        return await self._tables(
            topic,
            encode_compaction(
                self._root,
                self._cluster_id(),
                topic,
                tables,
                low_watermark=low_watermark,
                row_group_bytes=self._row_group_bytes,
                table_grace_s=self._table_grace_s,
                confirmed_us=self._confirmed_us(),
            ),
        )

    async def reconcile(self, topic: Topic) -> bool:
        """As the port says.

        Raises:
            Unavailable, DeadlineExceeded: as ``convert``.
        """
        answer = await self._answer(
            encode_reconciliation(
                self._root,
                self._cluster_id(),
                topic,
                table_grace_s=self._table_grace_s,
                confirmed_us=self._confirmed_us(),
            )
        )
        self._warn(topic.name, answer.warning)
        return answer.warning is None

    def _confirmed_us(self) -> int:
        """Return the time that it is at least, for what is kept for ``table_grace_s``."""
        steady_s = boot_s()
        self._watch.note(time.time_ns() // 1_000, steady_s)  # noqa: TID251 - beside a real process, on a real disk
        return self._watch.confirmed_us(steady_s, doubt_s(self._table_grace_s))

    async def _tables(self, topic: Topic, request: bytes) -> list[SegmentFile]:
        answer = await self._answer(request)
        self._warn(topic.name, answer.warning)
        return answer.tables

    def _warn(self, name: TopicName, warning: str | None) -> None:
        """Once for each reason: a log that is damaged stays so until somebody rebuilds it."""
        if warning is None:
            self._warned.pop(name, None)
        elif self._warned.get(name) != warning:
            if len(self._warned) >= WARNED_MAX:
                self._warned.clear()
            self._warned[name] = warning
            log.warning("%s: the Delta log is not in line with the tables: %s", name, warning)

    async def _answer(self, request: bytes) -> Answer:
        async with self._turn:
            self._stop_idle_timer()
            asking = retrying(backoff(self._rng, 0.5, 0.5), on=Unavailable, stop=after_attempts(ATTEMPTS))
            line: bytes = await asking(self._ask, request)
            self._idle = asyncio.get_running_loop().call_later(self._idle_s, self._end_idle)
            return decode_answer(line)

    async def close(self) -> None:
        """End the child; a conversion that runs is broken off and leaves nothing but a temporary file."""
        self._stop_idle_timer()
        child, self._child = self._child, None
        if child is not None:
            await _end(child, now=True)
        if self._ending:
            await asyncio.wait(self._ending)

    async def _ask(self, request: bytes) -> bytes:
        """One request to the child and its answer. Leaves no child whose next answer would be to this request."""
        if self._child is None or self._child.returncode is not None:
            self._child = await _start()
        child = self._child
        if child.stdin is None or child.stdout is None:
            raise AssertionError("the child was started with pipes")
        answered = False
        try:
            async with asyncio.timeout(self.timeout_s):
                if child.stdin.is_closing():  # uvloop takes a write to it for a bug of ours
                    raise BrokenPipeError("it has closed its side, and its exit is not known yet")
                child.stdin.write(request)
                await child.stdin.drain()
                line = await child.stdout.readline()
            answered = line.endswith(b"\n")
        except TimeoutError:
            raise DeadlineExceeded(
                f"the table worker did not answer within {self.timeout_s:.0f} s: the storage may hang; the files are "
                "kept and tried again"
            ) from None
        except OSError as e:
            raise Unavailable(f"the table worker {child.pid} can not be reached ({e}): it is started again") from e
        finally:
            if not answered and self._child is child:
                self._child = None
                # After EOF it is ending already, and its own exit status tells why.
                await _end(child, now=not child.stdout.at_eof())
        if not answered:
            raise Unavailable(
                f"the table worker {child.pid} died with status {child.returncode} (its reason is on stderr; by the "
                "kernel if memory ran out): it is started again, and the log files are kept"
            )
        return line

    def _stop_idle_timer(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None

    def _end_idle(self) -> None:
        if self._turn.locked():
            return  # a request came in this very moment, and sets the timer anew
        child, self._child = self._child, None
        if child is not None:
            task = asyncio.get_running_loop().create_task(_end(child, now=False))
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)


async def _start() -> Process:
    """Start a child.

    Raises:
        Unavailable: If the system refuses.
    """
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
    """Close the child's stdin, which ends it when it waits for a request; kill it if ``now`` or if it does not end."""
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
