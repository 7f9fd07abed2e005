"""Batches, tables and uploads without an outcome, and the flushes that wait for them."""

import asyncio
from collections.abc import Iterator
from typing import TypeAlias

from seaweedmq.client.publish.batches.batch import Batch
from seaweedmq.client.publish.batches.tables import TableJob
from seaweedmq.client.publish.uploads.job import UploadJob

Work: TypeAlias = Batch | TableJob | UploadJob


class UnsettledWork:
    """The work that the loop has taken and that has no outcome. Only the loop's thread uses it."""

    def __init__(self) -> None:
        self._works: dict[Work, None] = {}
        self._flushes: list[tuple[set[Work], asyncio.Future[None]]] = []

    def __iter__(self) -> Iterator[Work]:
        return iter(self._works)

    def __len__(self) -> int:
        return len(self._works)

    def add(self, work: Work) -> None:
        """Add work that the loop has taken."""
        self._works[work] = None

    def settle(self, work: Work) -> None:
        """Remove work that has its outcome, and end flushes."""
        self._works.pop(work, None)
        for pending, done in self._flushes:
            pending.discard(work)
            if not pending and not done.done():
                done.set_result(None)

    async def wait(self, pending: set[Work]) -> None:
        """Wait until all of ``pending``, which is not empty, has its outcome, and remove from it what has one.

        It may contain work that the loop has not taken yet.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (pending, done)
        self._flushes.append(entry)
        try:
            await done
        finally:
            self._flushes.remove(entry)
