"""Periodic load reports of this broker to the leader."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerLoad, EtcdAccess, SegmentLoad
from seaweedmq.ports import BrokerApi, Environment
from seaweedmq.runtime.log_once import OnceLogger
from seaweedmq.runtime.retrying import backoff, retrying

log = logging.getLogger(__name__)

REPORTING = "load report"


class LoadReporter:
    """A task that measures the load of this broker and streams it to the current leader."""

    def __init__(
        self,
        *,
        broker_id: str,
        view: ClusterView,
        env: Environment,
        dial: Callable[[str], BrokerApi],
        budget: MemoryBudget,
        segments: Callable[[], Iterable[OpenSegment]],
        etcd: Callable[[], EtcdAccess],
        interval_s: float,
    ) -> None:
        """Create the task. ``dial`` returns a broker by id, and raises Unavailable if it is not registered."""
        self._failures_log = OnceLogger(log)
        self._broker_id = broker_id
        self._view = view
        self._env = env
        self._dial = dial
        self._budget = budget
        self._segments = segments
        self._etcd = etcd
        self._interval_s = interval_s
        self.cpu_share = 0.0
        """The last measured CPU use of this process, as a share of one core."""

    async def run(self) -> None:
        """Report to the current leader until cancelled. Failures are retried and never stop the broker."""
        while True:
            pause_s = backoff(self._env.rng, 0.1, self._interval_s)
            await retrying(pause_s, on=SeaweedMQError, on_retry=self._log_failure)(self._report)
            self._failures_log.over(REPORTING)

    async def _report(self) -> None:
        """Report to the current leader until another broker leads: a frozen leader would never end the stream."""
        reported_to = self._view.leader
        reporting = asyncio.ensure_future(self._leader().report_load(self._reports()))
        moved = asyncio.ensure_future(self._leader_moves(reported_to))
        try:
            await asyncio.wait({reporting, moved}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (reporting, moved):
                task.cancel()
            await asyncio.wait({reporting, moved})
        if not reporting.cancelled():
            reporting.result()
            raise Unavailable(f"leader {reported_to} ended the stream of load reports")

    async def _leader_moves(self, before: str | None) -> None:
        while self._view.leader == before:
            await self._view.wait_change(self._view.changes)

    def _leader(self) -> BrokerApi:
        if not self._view.leader:
            raise Unavailable("cluster has no leader at the moment")
        return self._dial(self._view.leader)

    async def _reports(self) -> AsyncGenerator[BrokerLoad, None]:
        while True:
            yield self.measure()
            await asyncio.sleep(self._interval_s)

    def measure(self) -> BrokerLoad:
        """Return the current load of this broker. Segments without recent traffic are omitted."""
        now = asyncio.get_running_loop().time()
        self.cpu_share = self._env.cpu_share()
        loads = []
        for segment in self._segments():
            meter, unwritten = segment.meter, segment.log.unwritten_bytes
            meter.update(now)
            if meter.long_bytes_per_s or unwritten:
                loads.append(
                    SegmentLoad(
                        topic=segment.topic.name,
                        segment=segment.segment.id,
                        bytes_per_s=meter.bytes_per_s,
                        records_per_s=meter.records_per_s,
                        long_bytes_per_s=meter.long_bytes_per_s,
                        long_records_per_s=meter.long_records_per_s,
                        unwritten_bytes=unwritten,
                        histogram=meter.histogram,
                    )
                )
        return BrokerLoad(
            broker=self._broker_id,
            cpu_share=self.cpu_share,
            memory_bytes=self._env.resident_bytes(),
            buffered_bytes=self._budget.used,
            segments=tuple(loads),
            etcd=self._etcd(),
        )

    def _log_failure(self, _: int, error: BaseException) -> None:
        if isinstance(error, SeaweedMQError) and not error.retryable:
            self._failures_log.add(REPORTING, error)
