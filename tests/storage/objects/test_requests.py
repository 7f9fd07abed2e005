"""The rule of retries, on virtual time."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from seaweedmq.errors import AlreadyExists, NotFound, StorageFailed
from seaweedmq.storage.objects.meter import RequestKind, RequestMeter
from seaweedmq.storage.objects.requests import ATTEMPTS_MIN, Requests

NAME = "s3://bucket/prefix/key"


class LibraryError(Exception):
    """An error of the client library."""


def rejection(status: int, code: str = "") -> LibraryError:
    return LibraryError(f"Server returned non-2xx status code: {status}: <Error><Code>{code or 'Some'}</Code></Error>")


RESET = LibraryError("HTTP error: error sending request")


class Store:
    """A store that answers by a script: an error, None for success, or seconds until the success."""

    def __init__(self, *script: Exception | float | None, then: Exception | float | None = None) -> None:
        self._script: Iterator[Exception | float | None] = iter(script)
        self._then = then
        self.attempts = 0
        self.at_once_max = self._at_once = 0
        self.requests = Requests((LibraryError, OSError), RequestMeter(), random.Random(1))

    async def attempt(self) -> str:
        self.attempts += 1
        self._at_once += 1
        self.at_once_max = max(self.at_once_max, self._at_once)
        try:
            answer = next(self._script, self._then)
            if isinstance(answer, Exception):
                raise answer
            await asyncio.sleep(answer or 0)
        finally:
            self._at_once -= 1
        return "done"

    async def send(self, action: str = "create", timeout_s: float = 30.0) -> str:
        return await self.requests.send(
            RequestKind.PUT, action, NAME, self.attempt, timeout_s=timeout_s, written_bytes=10
        )


async def test_passing_troubles_are_retried_and_counted() -> None:
    store = Store(rejection(500), RESET, rejection(409, "ConditionalRequestConflict"), rejection(503), OSError("short"))
    assert await store.send() == "done"
    assert store.attempts == 6
    counts = store.requests.meter.counts()
    assert (counts.requests[RequestKind.PUT], counts.written_bytes) == (6, 60)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (rejection(403, "AccessDenied"), StorageFailed),
        (rejection(400, "ExpiredToken"), StorageFailed),
        (rejection(404, "NoSuchBucket"), StorageFailed),
        (rejection(404, "NoSuchKey"), NotFound),
        (rejection(412), AlreadyExists),
    ],
)
async def test_a_lasting_rejection_is_raised_at_once(answer: LibraryError, kind: type[Exception]) -> None:
    store = Store(answer)
    with pytest.raises(kind, match=NAME) as raised:
        await store.send()
    assert type(raised.value) is kind
    assert store.attempts == 1


async def test_no_error_refers_to_the_text_of_the_library() -> None:
    for answer in (rejection(403), rejection(500), RESET):
        with pytest.raises(StorageFailed) as raised:
            await Store(then=answer).send(timeout_s=0.5)
        error: BaseException | None = raised.value
        while error is not None:
            assert not isinstance(error, LibraryError)
            error = error.__cause__ or error.__context__


async def test_an_attempt_without_answer_is_retried_after_a_third_of_the_deadline() -> None:
    store, start = Store(1e6), asyncio.get_running_loop().time()
    assert await store.send(timeout_s=30.0) == "done"
    assert store.attempts == 2
    assert 10.0 <= asyncio.get_running_loop().time() - start < 10.1


async def test_the_deadline_ends_all_attempts_with_the_last_reason() -> None:
    loop = asyncio.get_running_loop()
    for answer, reason in ((1e6, "no answer"), (rejection(503, "SlowDown"), "limits requests"), (RESET, "no answer")):
        store, start = Store(then=answer), loop.time()
        with pytest.raises(StorageFailed, match=rf"cannot create {NAME}: .*{reason}.*retried for 6 s"):
            await store.send(timeout_s=6.0)
        assert 5.0 <= loop.time() - start <= 6.001
        assert store.attempts >= ATTEMPTS_MIN


async def test_an_outage_of_a_minute_is_survived_by_a_caller_that_retries() -> None:
    loop = asyncio.get_running_loop()
    store = Store(then=rejection(503))
    loop.call_later(60.0, setattr, store, "_then", None)
    failures = 0
    while True:
        try:
            assert await store.send(timeout_s=10.0) == "done"
            break
        except StorageFailed:
            failures += 1
    assert failures in (5, 6)
    assert store.attempts < 200, "pauses grow"
    assert 60.0 <= loop.time() < 70.0


async def test_an_overloaded_store_gets_half_the_requests_at_one_time() -> None:
    store = Store(rejection(503), then=0.01)
    await store.send()
    await asyncio.gather(*(store.send() for _ in range(40)))
    assert store.at_once_max == 32


async def test_waiting_for_a_turn_counts_against_the_deadline() -> None:
    store = Store(then=1e6)
    waits = [asyncio.create_task(store.send(timeout_s=600.0)) for _ in range(store.requests.concurrency.limit)]
    await asyncio.sleep(0)
    with pytest.raises(StorageFailed, match="no answer"):
        await store.send(timeout_s=1.0)
    assert store.attempts == len(waits)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    assert store.requests.concurrency.under_way == 0


async def test_an_error_of_the_program_is_no_answer_of_the_store() -> None:
    store = Store()

    async def broken() -> str:
        raise TypeError("a bug")

    with pytest.raises(TypeError, match="a bug"):
        await store.requests.send(RequestKind.GET, "read", NAME, broken, timeout_s=10.0)
