"""Runtime of a state machine, one for each partition of an internal topic that this broker leads.

| stage | event | effect |
|---|---|---|
| loading | all records of the partition are read | active |
| loading | a request | the machine's error for it |
| active | a request or a timer | the state machine returns records, and replies to send once these are committed |
| active | a read of the state | its reply is sent once everything it saw is committed |
| active | nothing to append while the lease is in doubt | an empty record is appended: its commit proves the rest |
| active | enough was written since the last snapshot | a snapshot is appended in parts; older records may be deleted |
| any | an append fails, or the segment ends | over: all waiting requests get StaleMetadata, the state is dropped |

Invariants: there is one append at a time, and everything that arrives meanwhile joins the next one. The state is ahead
of the committed records, so a reply is sent only once all that it shows is committed.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, Final, Generic, TypeVar

from seaweedmq.errors import Corrupt, SeaweedMQError, StaleMetadata
from seaweedmq.ports import Environment
from seaweedmq.runtime.retrying import backoff, retrying, when
from seaweedmq.runtime.signal import Signal
from seaweedmq.shards.machine import E, M, MachineKind, Pair
from seaweedmq.shards.shard_log import ShardLog
from seaweedmq.shards.snapshots import AFTER_BYTES, Snapshots

log = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_TIMEOUT_S: Final = 10.0
"""Seconds for an append to be committed; the shard ends if it is not."""
LOAD_RETRY_S_FIRST, LOAD_RETRY_S_MAX = 0.05, 2.0
LOADED_AT_ONCE: Final = 500
"""Records loaded into the state in one step of the event loop."""


def _itself(reply: T) -> T:
    return reply


class Stage(Enum):
    """Stage of a shard: see the module."""

    LOADING = "loading"
    ACTIVE = "active"
    OVER = "over"


@dataclass(slots=True)
class _Append:
    """The records of one append, and the replies to send once it is committed."""

    pairs: list[Pair] = field(default_factory=list)
    answers: list[tuple[int, Any]] = field(default_factory=list)
    """Pairs of a request's token and its reply."""

    def __bool__(self) -> bool:
        return bool(self.pairs or self.answers)


class Shard(Generic[M, E]):
    """The state machine of one partition, while this broker leads it."""

    def __init__(
        self,
        log_: ShardLog,
        kind: MachineKind[M, E],
        *,
        env: Environment,
        raise_mark: Callable[[int], None],
        snapshot_after_bytes: int = AFTER_BYTES,
    ) -> None:
        """Create a shard that loads in :meth:`run`; ``raise_mark`` makes the records below an offset deletable."""
        self.partition = log_.partition
        self.stage = Stage.LOADING
        self._kind = kind
        self._env = env
        self._raise_mark = raise_mark
        self._log = log_
        self._loop = asyncio.get_running_loop()
        self._state = kind.new()
        self._tokens = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[Any], Any]]] = {}
        """Unanswered requests by token, including cancelled ones."""
        self._round = _Append()
        self._is_writing = False
        self._work = Signal()
        self._timer: asyncio.TimerHandle | None = None
        self._snapshots = Snapshots(kind.encode, snapshot_after_bytes)

    @property
    def is_active(self) -> bool:
        """Whether the shard answers requests."""
        return self.stage is Stage.ACTIVE

    def submit(self, event_of: Callable[[int], E], result_of: Callable[[Any], Any] = _itself) -> "asyncio.Future[Any]":
        """Handle a request and return a future of its reply, done already if no commit has to precede the reply.

        ``event_of`` makes the event from the request's token, ``result_of`` the result from the state machine's reply.
        Raises the machine's ``loading_error``, which the future never has, if the shard is loading, and StaleMetadata
        if it is over; the future has that if the shard ends before the reply counts.
        """
        self._check_active()
        token = next(self._tokens)
        event = event_of(token)
        answer = self._answer_to(token, result_of)
        self._take(event)
        return answer

    def read(self, query: Callable[[M], T]) -> "asyncio.Future[T]":
        """Query the state; the future is done once everything read is committed. Raises as :meth:`submit`."""
        self._check_active()
        token = next(self._tokens)
        seen = query(self._state)
        answer = self._answer_to(token, _itself)
        self._settle(_Append(answers=[(token, seen)]))
        return answer

    def _answer_to(self, token: int, result_of: Callable[[Any], Any]) -> "asyncio.Future[Any]":
        answer = self._loop.create_future()
        self._waiting[token] = answer, result_of
        return answer

    def _check_active(self) -> None:
        if self.stage is Stage.LOADING:
            raise self._kind.loading_error(
                f"partition {self.partition.partition} of {self.partition.topic.name} is being loaded: retry"
            )
        if self.stage is Stage.OVER:
            raise self._moved()

    def _moved(self) -> StaleMetadata:
        return StaleMetadata(
            f"this broker no longer leads partition {self.partition.partition} of {self.partition.topic.name}: "
            "look up the coordinator again"
        )

    def _take(self, event: E) -> None:
        try:
            outcome = self._state.handle(event, self._loop.time(), self._env.wall_us() // 1_000)
            pairs = [self._kind.encode(record) for record in outcome.records]
        except Exception:
            self._end()  # the event may be half applied: the next shard reloads the committed state
            self._work.fire()
            raise
        self._set_timer()
        answers = [(reply.token, reply) for reply in outcome.replies]
        if outcome.prompt:
            prompt = [(reply.token, reply) for reply in outcome.prompt]
            if self.partition.is_sure:
                self._answer(prompt)
            else:
                answers += prompt
        if pairs or answers:
            self._settle(_Append(pairs, answers))

    def _settle(self, more: _Append) -> None:
        """Send the replies once everything handled so far is committed."""
        if not more.pairs and not self._round and not self._is_writing and self.partition.is_sure:
            self._answer(more.answers)
            return
        self._round.pairs += more.pairs
        self._round.answers += more.answers
        self._work.fire()

    def _answer(self, answers: Iterable[tuple[int, Any]]) -> None:
        for token, reply in answers:
            answer, result_of = self._waiting.pop(token, (None, _itself))
            if answer is None or answer.done():
                continue  # the request was cancelled
            try:
                answer.set_result(result_of(reply))
            except Exception as error:  # noqa: BLE001 - concerns this request only
                answer.set_exception(error)

    def _set_timer(self) -> None:
        wake_at = self._state.wake_at
        if self._timer is not None:
            if self._timer.when() == wake_at:
                return
            self._timer.cancel()
        self._timer = None if wake_at is None else self._loop.call_at(wake_at, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        self._take(self._kind.tick)

    async def run(self) -> None:
        """Load, then append records until the segment ends or an append fails."""
        try:
            loading = retrying(
                backoff(self._env.rng, LOAD_RETRY_S_FIRST, LOAD_RETRY_S_MAX),
                on=Exception,  # a failure of one partition must not end the others of this broker
                stop=when(lambda: self.partition.is_over),
                on_retry=self._log_load_failure,
            )
            await loading(self._load)
            self._begin()
            while self.is_active and not self.partition.is_over:
                if self._round or self._snapshots.under_way:
                    await self._write_round()
                else:
                    await self._work.wait(self.partition.changed)
        except (SeaweedMQError, TimeoutError) as error:
            log.info("coordinator stopped: %s: %s", self.partition.segment, error or "commit timed out")
        finally:
            self._end()

    async def _load(self) -> None:
        state = self._kind.new()
        try:
            kept = await self._log.load()
            for number, (key, value) in enumerate(kept.latest.items()):
                try:
                    record = self._kind.decode(key, value)
                except Corrupt as error:
                    log.error(
                        "%s record skipped: %s: key %r is unreadable: %s",
                        self._kind.name,
                        self.partition.segment,
                        key[:80],
                        error,
                    )
                    continue
                if record is not None:
                    state.load(record)
                if number % LOADED_AT_ONCE == 0:
                    await asyncio.sleep(0)
            state.begin(self._loop.time(), self._env.wall_us() // 1_000)
        except BaseException:
            state.close()
            raise
        self._state = state
        self._snapshots.loaded(kept, self._loop.time())

    async def _write_round(self) -> None:
        now, self._round = self._round, _Append()
        self._is_writing = True
        try:
            self._snapshots.begin_if_due(self.partition.end, self._state.snapshot, self._loop.time())
            self._snapshots.note(now.pairs)
            piece = self._snapshots.piece()
            if now.pairs or piece:
                await self._write([*now.pairs, *piece])
            elif not self.partition.is_sure:
                await self._write([self._kind.encode(self._kind.nothing)])
        finally:
            self._is_writing = False
        self._answer(now.answers)
        mark = self._snapshots.take_mark()
        if mark is not None:
            self._raise_mark(mark)

    async def _write(self, pairs: Sequence[Pair]) -> None:
        """Append records and wait until they are committed."""
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            end = await self._log.append(pairs, self._env.wall_us())
            await self.partition.committed(end)

    def _begin(self) -> None:
        self.stage = Stage.ACTIVE
        self._set_timer()

    def _end(self) -> None:
        self.stage = Stage.OVER
        self._state.close()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(self._moved())
                answer.exception()  # marks it as retrieved: the caller may fail before it awaits

    def _log_load_failure(self, attempt: int, error: BaseException) -> None:
        is_expected = isinstance(error, SeaweedMQError)
        log.log(
            logging.WARNING if attempt == 1 else logging.DEBUG,
            "coordinator not loaded: %s: %s; retrying",
            self.partition.segment,
            error,
            exc_info=None if is_expected else error,
        )
