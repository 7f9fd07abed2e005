"""What this broker tells the leader about itself, once an interval."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterable

import psutil
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.primary import OpenSegment
from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.broker import BrokerLoad, SegmentLoad
from seaweedmq.ports import BrokerApi, Dialer

log = logging.getLogger(__name__)


class LoadReporter:
    """Measures, and streams the measurements to whoever leads."""

    def __init__(
        self,
        *,
        broker_id: str,
        view: ClusterView,
        dialer: Dialer,
        budget: MemoryBudget,
        segments: Callable[[], Iterable[OpenSegment]],
        interval_s: float,
        local: BrokerApi,
    ) -> None:
        self._broker_id = broker_id
        self._view = view
        self._dialer = dialer
        self._budget = budget
        self._segments = segments
        self._interval_s = interval_s
        self._local = local
        self._process = psutil.Process()

    async def run(self) -> None:
        """Report until cancelled, to one leader after the other. Whatever goes wrong with it, serving goes on."""
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(SeaweedMQError),
            wait=wait_random_exponential(multiplier=0.1, max=self._interval_s),
            before_sleep=_complain,
        )
        while True:
            async for attempt in retrying.copy():
                with attempt:
                    await self._report()

    async def _report(self) -> None:
        """To whoever leads now, until somebody else does: a frozen leader would never end the stream."""
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
            raise Unavailable(f"the leader {reported_to} ended the stream of load reports")

    async def _leader_moves(self, before: str | None) -> None:
        while self._view.leader == before:
            await self._view.wait_change(self._view.changes)

    def _leader(self) -> BrokerApi:
        leader = self._view.leader
        if leader == self._broker_id:
            return self._local
        info = self._view.brokers.get(leader or "")
        if info is None:
            raise Unavailable("no broker leads at the moment")
        return self._dialer.dial(info.address)

    async def _reports(self) -> AsyncGenerator[BrokerLoad, None]:
        while True:
            yield self.measure()
            await asyncio.sleep(self._interval_s)

    def measure(self) -> BrokerLoad:
        """This broker's load as of now. Segments without any traffic lately are left out: absent means none."""
        now = asyncio.get_running_loop().time()
        loads = []
        for segment in self._segments():
            meter, unflushed = segment.meter, segment.log.unwritten_bytes
            meter.look(now)
            if meter.long_bytes_per_s or unflushed:
                loads.append(
                    SegmentLoad(
                        topic=segment.topic.name,
                        segment=segment.segment.id,
                        bytes_per_s=meter.bytes_per_s,
                        records_per_s=meter.records_per_s,
                        long_bytes_per_s=meter.long_bytes_per_s,
                        long_records_per_s=meter.long_records_per_s,
                        unflushed_bytes=unflushed,
                        histogram=meter.histogram,
                    )
                )
        return BrokerLoad(
            broker=self._broker_id,
            cpu_share=self._process.cpu_percent(interval=None) / 100,
            memory_bytes=self._process.memory_info().rss,
            buffered_bytes=self._budget.used,
            segments=tuple(loads),
        )


def _complain(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, SeaweedMQError) and not error.retryable:
        log.warning("load is not reported now, trying on: %s", error)
