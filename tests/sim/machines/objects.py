"""An object store as simulated processes see it: requests arrive late, twice, and after their sender died.

All processes share one ``MemoryBucket``. The death of a process does not stop the requests that it sent. A client
retries what got no answer, as the real adapter does. So a request may be applied long after its sender got the
answer to its retry, and the sender of an applied create may see AlreadyExists.
"""

import asyncio
import contextvars
import random
from dataclasses import dataclass

from seaweedmq.errors import StorageFailed
from tests.doubles.memory_objects import MemoryBucket, MemoryObjects, ObjectAnswer, ObjectOp, ObjectRequest

ATTEMPTS_MAX = 4
ANSWER_S_MAX = 1.0
"""Seconds after which a client retries a request that got no answer."""
_OF_THE_STORE = contextvars.Context()
"""Context of what the store does: it belongs to no process, so it survives each."""
_RETRIED_LATE = frozenset({ObjectOp.CREATE, ObjectOp.REPLACE, ObjectOp.DELETE, ObjectOp.PUT})


@dataclass(slots=True, kw_only=True)
class ObjectFaults:
    """Faults that the nemesis sets; :meth:`calm` is a fast and reliable store."""

    latency_s_max: float = 0.02
    lost_share: float = 0.0
    """Share of requests that never arrive."""
    unanswered_share: float = 0.0
    """Share of requests that are applied and get no answer."""
    late_share: float = 0.0
    """Share of requests that get no answer and are applied up to ``late_s_max`` later."""
    late_s_max: float = 30.0
    twice_share: float = 0.0
    """Share of writes that are applied again up to ``late_s_max`` later."""

    def calm(self) -> None:
        self.lost_share = self.unanswered_share = self.late_share = self.twice_share = 0.0


class SimObjectStore:
    """The shared bucket, and its faults."""

    def __init__(self, bucket: MemoryBucket, rng: random.Random) -> None:
        self.bucket = bucket
        self.rng = rng
        self.faults = ObjectFaults()
        self.under_way = 0
        """Requests that will still be applied."""
        self.settled = asyncio.Event()
        """Set while there is none."""
        self.settled.set()

    def client(self, sender: str) -> MemoryObjects:
        """Return the store as one process sees it."""
        return MemoryObjects(self.bucket, sender, self._carry)

    async def _carry(self, request: ObjectRequest) -> ObjectAnswer:
        """Send a request until it is answered."""
        for _ in range(ATTEMPTS_MAX):
            answer = self._leave(request)
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    return await answer
            except TimeoutError:
                continue
        raise StorageFailed(f"cannot {request.op} {request.key}: no answer; the nemesis keeps it")

    def _leave(self, request: ObjectRequest) -> "asyncio.Future[ObjectAnswer]":
        """Send a request once, and return its answer, which may never come."""
        faults, rng = self.faults, self.rng
        answer: asyncio.Future[ObjectAnswer] = asyncio.get_running_loop().create_future()
        fate, latency_s = rng.random(), rng.uniform(0, faults.latency_s_max)
        if fate < faults.lost_share:
            return answer
        fate -= faults.lost_share
        if fate < faults.unanswered_share:
            self._apply_in(latency_s, request, None)
        elif fate < faults.unanswered_share + faults.late_share:
            self._apply_in(rng.uniform(0, faults.late_s_max), request, None)
        else:
            self._apply_in(latency_s, request, answer)
        if request.op in _RETRIED_LATE and rng.random() < faults.twice_share:
            self._apply_in(rng.uniform(0, faults.late_s_max), request, None)
        return answer

    def _apply_in(self, delay_s: float, request: ObjectRequest, answer: "asyncio.Future[ObjectAnswer] | None") -> None:
        self.under_way += 1
        self.settled.clear()
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, self._apply, request, answer, context=_OF_THE_STORE.copy())

    def _apply(self, request: ObjectRequest, answer: "asyncio.Future[ObjectAnswer] | None") -> None:
        result = self.bucket.apply(request)
        self.under_way -= 1
        if not self.under_way:
            self.settled.set()
        if answer is not None:
            back_s = self.rng.uniform(0, self.faults.latency_s_max)
            asyncio.get_running_loop().call_later(back_s, _resolve, answer, result, context=_OF_THE_STORE.copy())


def _resolve(answer: "asyncio.Future[ObjectAnswer]", result: ObjectAnswer) -> None:
    if not answer.done():
        answer.set_result(result)
