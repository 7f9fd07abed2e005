"""Write-out of a replica to a log file of this broker: one attempt at a time, shared by all callers.

An attempt continues when its callers have given up: a leader that timed out calls again, and hanging storage gets one
request. A failed attempt leaves a file with some of the same frames, possibly torn. Recovery accepts whole frames in
any file of a segment, so the file is harmless, and useful if this process dies. Because its name is taken, each
attempt uses another name.
"""

import asyncio
import logging
import random
from collections.abc import Callable, Sequence

from seaweedmq.broker.segment.log_file import create_log_file
from seaweedmq.codec.paths import log_path
from seaweedmq.core.segment.replica import Replica
from seaweedmq.errors import AlreadyExists, NotFound, SeaweedMQError, StorageFailed, fresh
from seaweedmq.model.files import FileKind, SegmentFile
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic
from seaweedmq.ports import DirectoryStore, LogWriter
from seaweedmq.runtime.retrying import backoff

log = logging.getLogger(__name__)

RETRY_S_MAX = 5.0
"""Longest pause in seconds between two attempts. Each attempt may leave a file until storage recovers."""


class ReplicaWriter:
    """A writer of one replica's frames to a log file. The replica must be fenced or closed when ``run`` is called."""

    def __init__(
        self,
        store: DirectoryStore,
        topic: Topic,
        segment: Segment,
        replica: Replica,
        broker_id: str,
        rng: random.Random,
        provenance: Callable[[Segment], Sequence[Segment]] = lambda segment: (segment,),
    ) -> None:
        self.topic = topic
        self.segment = segment
        self.is_done = False
        """Whether all frames of the replica are flushed to a file."""
        self._store = store
        self._provenance = provenance
        self._replica = replica
        self._broker_id = broker_id
        self._pause_s = backoff(rng, 0.1, RETRY_S_MAX)
        self._names = 0
        """The number of file names used."""
        self._attempts = 0
        """The number of attempts that began to write. If there is a next one, all of them have failed."""
        self._leftovers: list[SegmentFile] = []
        """The files of failed attempts."""
        self._attempt: asyncio.Task[None] | None = None
        self._dropped = False

    async def run(self) -> None:
        """Write all frames and return once they are flushed. A cancelled caller does not stop the attempt.

        Raises StorageFailed if this attempt failed, and NotFound if the replica was dropped. The next call makes
        another attempt, after a pause.
        """
        if self._dropped:
            raise self._dropped_error()
        if self.is_done:
            return
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.create_task(self._try(), name=f"write out {self._replica.name}")
            self._attempt.add_done_callback(_retrieve)
        attempt = self._attempt
        await asyncio.wait({attempt})
        if attempt.cancelled():
            raise self._dropped_error()
        error = attempt.exception()
        if error is not None:
            raise fresh(error) if isinstance(error, SeaweedMQError) else error

    def drop(self) -> None:
        """Stop writing. The attempt is not awaited: storage may hang."""
        self._dropped = True
        if self._attempt is not None:
            self._attempt.cancel()

    async def _try(self) -> None:
        if self._attempts:
            await asyncio.sleep(self._pause_s(self._attempts))
            await self._store.check()  # a failing check leaves no file, a failing attempt may
        self._attempts += 1
        await self._write()
        self.is_done = True
        await self._delete_leftovers()

    async def _write(self) -> None:
        replica = self._replica
        entries = replica.unflushed()
        if not entries:
            return
        base = entries[0].base_offset
        writer = await self._create(base)
        try:
            await writer.append([part for e in entries for part in (e.header, e.payload)])
            await writer.sync()
        except StorageFailed:
            self._leave(base, writer.path)
            raise
        finally:
            await writer.close()
        log.info("replica written out: %s, offsets [%d, %d) to %s", replica.name, base, replica.end, writer.path)

    async def _create(self, base: int) -> LogWriter:
        while True:
            name = self._next_name()
            try:
                return await create_log_file(
                    self._store,
                    self.topic,
                    self.segment,
                    base,
                    name,
                    self._replica.producers_below(base),
                    lineage=self._provenance(self.segment),
                )
            except StorageFailed:
                self._leave(base, log_path(self.topic.name, self.segment.id, base, name))  # may exist in part
                raise
            except AlreadyExists:
                continue  # the file belongs to an earlier topic of this name

    def _next_name(self) -> str:
        number, self._names = self._names, self._names + 1  # counted first: a failed attempt may have taken the name
        return f"{self._broker_id}.{number}" if number else self._broker_id

    def _leave(self, base: int, path: str) -> None:
        """Record the file that a failed attempt may have left."""
        self._leftovers.append(
            SegmentFile(
                topic=self.segment.topic,
                segment=self.segment.id,
                kind=FileKind.LOG,
                base_offset=base,
                end_offset=None,
                writer=self._broker_id,
                size_bytes=0,
                path=path,
                modified_us=0,
            )
        )

    async def _delete_leftovers(self) -> None:
        """Delete the files of failed attempts: the last file has their frames. Retention removes what is left."""
        leftovers, self._leftovers = self._leftovers, []
        try:
            if leftovers:
                await self._store.delete(leftovers)
        except StorageFailed as error:
            log.warning(
                "cleanup failed: %s keeps %d files of failed attempts: %s", self._replica.name, len(leftovers), error
            )

    def _dropped_error(self) -> NotFound:
        return NotFound(f"{self._replica.name}: broker no longer holds a replica of this segment")


def _retrieve(attempt: "asyncio.Task[None]") -> None:
    """Retrieve the error of an attempt without callers, so that asyncio does not log it."""
    if not attempt.cancelled():
        attempt.exception()
