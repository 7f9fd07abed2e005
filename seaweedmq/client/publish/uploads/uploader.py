"""The uploads of one publisher: some at once, the others in the order of the calls, and the records behind them."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.client.publish.batches.rows import Rows
from seaweedmq.client.publish.uploads.job import UploadJob
from seaweedmq.client.publish.uploads.order import Released, UploadOrder
from seaweedmq.client.publish.uploads.payload_upload import PayloadUpload
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.topic import TopicName

UPLOADS_AT_ONCE_MAX = 4
"""Limit of the concurrent uploads of a publisher. Four parts of streams take 64 MiB."""


class Uploader:
    """The uploads of one publisher, and the records that wait for them.

    ``spawn`` runs a task until it ends, or until the publisher is closed. ``release`` gets what may be sent now.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: TopicName,
        delivery_timeout_s: float,
        spawn: Callable[[Coroutine[Any, Any, None], str], None],
        release: Callable[[Released], None],
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._spawn = spawn
        self._release = release
        self._timeout_s = delivery_timeout_s
        self._order = UploadOrder(delivery_timeout_s)
        self._queue: deque[UploadJob] = deque()
        self._workers = 0
        # Not the threads of the loop: streams that wait would take all of them, also those that feed such a stream.
        self._readers = ThreadPoolExecutor(UPLOADS_AT_ONCE_MAX, "seaweedmq-upload")
        self.topic_uid = 0
        """Uid of the topic, which the publisher sets at its start."""

    def admit(self, rows: Rows) -> Rows | None:
        """Return the rows that need not wait for an upload: see ``UploadOrder.admit``."""
        return self._order.admit(rows)

    def start(self, job: UploadJob) -> None:
        """Upload a payload as soon as others permit."""
        self._order.begin(job.ticket)
        self._queue.append(job)
        if self._workers < UPLOADS_AT_ONCE_MAX:
            self._workers += 1
            self._spawn(self._work(), "uploads")

    def close(self) -> None:
        """Release the threads that read, without waiting for one that still does."""
        self._readers.shutdown(wait=False)

    async def _work(self) -> None:
        while self._queue:
            job = self._queue.popleft()
            rows: Rows | None = None
            upload = PayloadUpload(
                self._cluster, self._topic, self.topic_uid, job.source, self._timeout_s, self._readers
            )
            try:
                rows = job.record(await upload.run())
            except SeaweedMQError as error:
                job.promise.failed(range(1), error)
            for released in self._order.finish(job.ticket, rows, asyncio.get_running_loop().time()):
                self._release(released)
        self._workers -= 1
