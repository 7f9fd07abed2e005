"""Retries of requests to an object store, by one rule for all of them.

A request is retried with jitter until its deadline after no answer, 408, 409, 425, 429 and 5xx; its own attempt ends
after a third of that. Every request of ``ports.Objects`` allows it: reads and deletions change nothing by a second
time, a put is documented as such, and of a create or a replace the store applies one. The attempt that finds its own
object reports AlreadyExists or Conflict, since the store cannot tell; the caller compares.
"""

import asyncio
import logging
import os
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from seaweedmq.errors import SeaweedMQError, StorageFailed, Unsupported
from seaweedmq.ports import TIMEOUT_S
from seaweedmq.runtime.retrying import backoff, retrying, when
from seaweedmq.runtime.retrying import deadline as deadline_of
from seaweedmq.storage.objects.answers import NO_ANSWER, Answer, Rejected, answer_of
from seaweedmq.storage.objects.concurrency import Concurrency
from seaweedmq.storage.objects.meter import RequestKind, RequestMeter

logger = logging.getLogger(__name__)

T = TypeVar("T")

PAUSE_S_FIRST = 0.05
PAUSE_S_MAX = 2.0
ATTEMPTS_MIN = 3
"""Attempts for which each deadline has time, although none answers."""

_process: int | None = None
"""Process whose first request started the threads of the client library, which its forks lack."""


class Requests:
    """The requests of one process to one store. Belongs to the event loop."""

    def __init__(
        self, failures: type[Exception] | tuple[type[Exception], ...], meter: RequestMeter, rng: random.Random
    ) -> None:
        """Create the rule; ``failures`` are the errors of the client library."""
        self.meter = meter
        self.concurrency = Concurrency()
        self._failures = failures
        self._pause_s = backoff(rng, PAUSE_S_FIRST, PAUSE_S_MAX)

    async def send(
        self,
        kind: RequestKind,
        action: str,
        name: str,
        attempt: Callable[[], Awaitable[T]],
        *,
        timeout_s: float,
        written_bytes: int = 0,
    ) -> T:
        """Return the result of the first attempt that succeeds.

        Args:
            kind: Kind of the request, for the meter.
            action: The request as a verb, for messages.
            name: URI of the object, for messages.
            attempt: Sends the request once.
            timeout_s: Deadline of all attempts.
            written_bytes: Bytes of content that each attempt sends.

        Raises:
            Unsupported: If this process is a fork of one that used an object store.
            StorageFailed: If the store rejects the request, or the deadline passes.
            NotFound, AlreadyExists, Conflict: As the answer of the store says.
        """
        _check_process()
        last = Answer(0, NO_ANSWER)

        def note(_: int, error: BaseException) -> None:
            nonlocal last
            last = error.answer if isinstance(error, Rejected) else last
            logger.debug("%s retried: %s %s", action, name, last)

        async def once() -> T:
            async with self.concurrency.one() as halved:
                self.meter.add(kind, written_bytes=written_bytes)
                answer = Answer(0, NO_ANSWER)
                try:
                    async with asyncio.timeout(timeout_s / ATTEMPTS_MIN):
                        result = await attempt()
                        self.concurrency.succeeded()
                        return result
                except self._failures as error:  # TimeoutError is an OSError
                    if not isinstance(error, TimeoutError):
                        answer = answer_of(error)
                # Raised here, so that it does not refer to an error whose text may hold a signed URL.
                if answer.is_throttled:
                    self.concurrency.throttled(halved)
                raise Rejected(answer)

        try:
            async with asyncio.timeout(timeout_s):
                attempts = retrying(self._pause_s, on=_is_retried, stop=when(deadline_of(timeout_s)), on_retry=note)
                return await attempts(once)
        except TimeoutError:
            raise late(last, action, name, timeout_s) from None
        except Rejected as rejected:
            if rejected.answer.is_retried:
                raise late(rejected.answer, action, name, timeout_s) from None
            raise rejected.answer.error(action, name) from None

    async def without_request(self, action: str, name: str, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of a call that sends the store nothing, but may fetch keys; raises StorageFailed."""
        _check_process()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await call()
        except TimeoutError:
            raise late(Answer(0, NO_ANSWER), action, name, TIMEOUT_S) from None
        except self._failures as error:
            raise StorageFailed(str(answer_of(error).error(action, name))) from None


def late(last: Answer, action: str, name: str, timeout_s: float) -> SeaweedMQError:
    """Return the error of a request whose deadline passed, with its last answer as the reason."""
    error = last.error(action, name)
    return StorageFailed(f"{error} (retried for {timeout_s:g} s)")


def _check_process() -> None:
    """Raise Unsupported in a fork of a process that used an object store; no request would get an answer."""
    global _process
    if _process is None:
        _process = os.getpid()
    elif _process != os.getpid():
        raise Unsupported(
            f"process {_process} used an object store and was then forked, which obstore does not support: use object "
            "stores in children only, or start processes with spawn"
        )


def _is_retried(error: BaseException) -> bool:
    return isinstance(error, Rejected) and error.answer.is_retried
