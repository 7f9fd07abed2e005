"""Writing a replica to a log file of this broker: one attempt at a time, shared by everybody who asks.

An attempt goes on when those who asked have gone: a leader that heard nothing in time asks again, and a storage that
hangs is asked once. One that failed leaves a file behind that holds a part of the same frames, perhaps torn. That does
no harm to recovery, which takes what is whole in any of a segment's files, and should this process die it is better
than nothing. But its name is taken, so every attempt has another one.
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
from seaweedmq.ports import LogWriter, SegmentStore
from seaweedmq.runtime.retrying import backoff

log = logging.getLogger(__name__)

RETRY_S_MAX = 5.0
"""Longest pause between two attempts: each may leave a file behind until the storage works again."""


class ReplicaWriter:
    """What a replica holds, on its way to the files. The replica takes no frames any more once ``run`` was called."""

    def __init__(
        self,
        store: SegmentStore,
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
        """All that the replica held is fsynced in a file."""
        self._store = store
        self._provenance = provenance
        self._replica = replica
        self._broker_id = broker_id
        self._pause_s = backoff(rng, 0.1, RETRY_S_MAX)
        self._names = 0
        """How many were tried."""
        self._attempts = 0
        """Begun so far: those before the next one have failed."""
        self._leftovers: list[SegmentFile] = []
        """Files of failed attempts."""
        self._attempt: asyncio.Task[None] | None = None
        self._dropped = False

    async def run(self) -> None:
        """Return once everything is fsynced. Who goes away does not stop it.

        Raises:
            StorageFailed: this attempt failed; the next call makes another one, after a pause.
            NotFound: the replica was dropped.
        """
        if self._dropped:
            raise self._gone()
        if self.is_done:
            return
        if self._attempt is None or self._attempt.done():
            self._attempt = asyncio.create_task(self._try(), name=f"write out {self._replica.name}")
            self._attempt.add_done_callback(_retrieve)
        attempt = self._attempt
        await asyncio.wait({attempt})
        if attempt.cancelled():
            raise self._gone()
        error = attempt.exception()
        if error is not None:
            raise fresh(error) if isinstance(error, SeaweedMQError) else error

    def drop(self) -> None:
        """Write no more. Not waited for: the storage may hang."""
        self._dropped = True
        if self._attempt is not None:
            self._attempt.cancel()

    async def _try(self) -> None:
        if self._attempts:
            await asyncio.sleep(self._pause_s(self._attempts))
            await self._store.check()  # while not even that works, no further file is left behind
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
        log.info("%s: wrote offsets [%d, %d) out to %s", replica.name, base, replica.end, writer.path)

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
                self._leave(base, log_path(self.topic.name, self.segment.id, base, name))  # perhaps half made
                raise
            except AlreadyExists:
                continue  # of an earlier topic of this name

    def _next_name(self) -> str:
        number, self._names = self._names, self._names + 1  # used up even if the attempt fails half done
        return f"{self._broker_id}.{number}" if number else self._broker_id

    def _leave(self, base: int, path: str) -> None:
        """Remember what a failed attempt may have left."""
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
        """All they hold is in the files twice now. What stays goes when retention looks at the segment's logs."""
        leftovers, self._leftovers = self._leftovers, []
        try:
            if leftovers:
                await self._store.delete(leftovers)
        except StorageFailed as error:
            log.warning("%s: %d files of failed attempts stay: %s", self._replica.name, len(leftovers), error)

    def _gone(self) -> NotFound:
        return NotFound(f"{self._replica.name}: this broker holds no replica of it any more")


def _retrieve(attempt: "asyncio.Task[None]") -> None:
    """Its error matters only while somebody waits for it."""
    if not attempt.cancelled():
        attempt.exception()
