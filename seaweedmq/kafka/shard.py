"""The runtime of a coordinator's state machine, one for each partition of an internal topic that this broker leads.

| stage | what happens | then |
|---|---|---|
| loading | everything that the partition holds is read | active |
| loading | a request | COORDINATOR_LOAD_IN_PROGRESS |
| active | a request, a timer | the state machine says what to append, and what to say once that is committed |
| active | a look at the state | told once all that it saw is committed |
| active | nothing to append, and the lease is in doubt | a record without meaning is: committed, it proves the rest |
| active | topics were deleted, also while it loaded or before | their offsets go, once etcd confirms it |
| active | much was written | a snapshot is appended, piece by piece between other records, and what is below may go |
| any | an append fails, or the segment ends | over: whoever waits hears NOT_COORDINATOR, the state is dropped |

There is one append at a time, and what comes meanwhile goes into the next one together. The state is ahead of what is
committed; nobody is told of what is not.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Any, Final, TypeVar

from seaweedmq.codec.kafka.group_records import decode_record, encode_record
from seaweedmq.core.kafka.classic_events import CoordinatorLimits, ShardEvent, Tick, TopicsDeleted
from seaweedmq.core.kafka.shard_state import GroupShard
from seaweedmq.core.kafka.state_memory import StateMemory
from seaweedmq.errors import Corrupt, SeaweedMQError, StaleMetadata
from seaweedmq.kafka.metadata.topic_ids import TopicIds
from seaweedmq.kafka.shard_log import Pair, ShardLog
from seaweedmq.kafka.shard_snapshots import AFTER_BYTES, Snapshots
from seaweedmq.kafka.wire.codes import Code
from seaweedmq.kafka.wire.error_mapping import KafkaError
from seaweedmq.model.kafka_groups import OffsetRecord
from seaweedmq.ports import Environment
from seaweedmq.runtime.retrying import backoff, retrying, when
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

T = TypeVar("T")

WRITE_TIMEOUT_S: Final = 10.0
"""What is not committed by then ends the shard."""
LOAD_RETRY_FIRST_S, LOAD_RETRY_MOST_S = 0.05, 2.0
LOADED_AT_ONCE: Final = 500
"""Records are taken into the state, then others have a turn."""
NOTHING: Final = OffsetRecord("", "", -1, None)
"""Says that an offset is gone which never was."""


def _itself(reply: T) -> T:
    return reply


class Stage(Enum):
    """See the module."""

    LOADING = "loading"
    ACTIVE = "active"
    OVER = "over"


@dataclass(slots=True)
class _Round:
    """What goes into one append, and what is said when it is committed."""

    pairs: list[Pair] = field(default_factory=list)
    answers: list[tuple[int, Any]] = field(default_factory=list)
    """Token and what to tell."""

    def __bool__(self) -> bool:
        return bool(self.pairs or self.answers)


class Shard:
    """A coordinator of the groups of one partition, as long as this broker leads it; then there is another one."""

    def __init__(
        self,
        log_: ShardLog,
        *,
        limits: CoordinatorLimits,
        memory: StateMemory,
        env: Environment,
        topic_ids: TopicIds,
        raise_mark: Callable[[int], None],
        snapshot_after_bytes: int = AFTER_BYTES,
    ) -> None:
        """``raise_mark``: have what lies below an offset deleted some time."""
        self.partition = log_.partition
        self.stage = Stage.LOADING
        self._limits = limits
        self._memory = memory
        self._env = env
        self._topic_ids = topic_ids
        self._raise_mark = raise_mark
        self._log = log_
        self._loop = asyncio.get_running_loop()
        self._state = GroupShard(limits, memory)
        self._tokens = count(1)
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[Any], Any]]] = {}
        """By token; of those that gave up, too, until they are answered."""
        self._round = _Round()
        self._is_writing = False
        self._work = Signal()
        self._timer: asyncio.TimerHandle | None = None
        self._doubtful: set[str] = set()
        """Topics that may be deleted, so that their offsets may have to go."""
        self._is_doubtful = asyncio.Event()
        self._snapshots = Snapshots(snapshot_after_bytes)

    @property
    def is_active(self) -> bool:
        """Whether it answers."""
        return self.stage is Stage.ACTIVE

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(
        self, event_of: Callable[[int], ShardEvent], made_of: Callable[[Any], Any] = _itself
    ) -> "asyncio.Future[Any]":
        """The ``Reply`` to a request, whose event is made of its token, or what is made of that. It is there already if
        nothing has to be committed before it is said.

        Raises:
            KafkaRefusal: it is still loading. The future never does.
            StaleMetadata: it is over, or was before there was a reply that counts.
        """
        self._check_active()
        token = next(self._tokens)
        event = event_of(token)
        answer = self._answer_to(token, made_of)
        self._take(event)
        return answer

    def look(self, at: Callable[[GroupShard], T]) -> "asyncio.Future[T]":
        """What there is to see in the state, once it counts. Raises as :meth:`ask`."""
        self._check_active()
        token = next(self._tokens)
        seen = at(self._state)
        answer = self._answer_to(token, _itself)
        self._settle(_Round(answers=[(token, seen)]))
        return answer

    def topics_deleted(self, topics: Iterable[str]) -> None:
        """Drop the offsets of topics that are no more, or others by now, once etcd confirms it."""
        self._doubtful.update(topics)
        if self._doubtful:
            self._is_doubtful.set()

    def _answer_to(self, token: int, made_of: Callable[[Any], Any]) -> "asyncio.Future[Any]":
        answer = self._loop.create_future()
        self._waiting[token] = answer, made_of
        return answer

    def _check_active(self) -> None:
        if self.stage is Stage.LOADING:
            raise KafkaError(
                Code.COORDINATOR_LOAD_IN_PROGRESS,
                f"partition {self.partition.partition} of {self.partition.topic.name} is being loaded: retry",
            )
        if self.stage is Stage.OVER:
            raise self._moved()

    def _moved(self) -> StaleMetadata:
        return StaleMetadata(
            f"this broker does not lead partition {self.partition.partition} of {self.partition.topic.name} any more: "
            "ask for the coordinator again"
        )

    def _take(self, event: ShardEvent) -> None:
        try:
            outcome = self._state.handle(event, self._loop.time(), self._env.wall_us() // 1_000)
            pairs = [encode_record(record) for record in outcome.records]
        except Exception:
            self._end()  # nobody knows how much of it happened: what was committed is loaded anew
            self._work.fire()
            raise
        self._set_timer()
        if self._memory.take_shortage():
            log.warning(
                "Kafka groups refused: those of this broker hold %d of %d bytes: delete groups, have members subscribe "
                "to less, use more brokers, or raise kafka_groups_bytes_max and memory_bytes_max",
                self._memory.used,
                self._memory.bytes_max,
            )
        answers = [(reply.token, reply) for reply in outcome.replies]
        if outcome.prompt:
            prompt = [(reply.token, reply) for reply in outcome.prompt]
            if self.partition.is_sure:
                self._say(prompt)
            else:
                answers += prompt
        if pairs or answers:
            self._settle(_Round(pairs, answers))

    def _settle(self, more: _Round) -> None:
        """Say it when all that was handled so far is committed."""
        if not more.pairs and not self._round and not self._is_writing and self.partition.is_sure:
            self._say(more.answers)
            return
        self._round.pairs += more.pairs
        self._round.answers += more.answers
        self._work.fire()

    def _say(self, answers: Iterable[tuple[int, Any]]) -> None:
        for token, told in answers:
            answer, made_of = self._waiting.pop(token, (None, _itself))
            if answer is None or answer.done():
                continue  # nobody waits any more
            try:
                answer.set_result(made_of(told))
            except Exception as error:  # noqa: BLE001 - who asked hears it; the others have nothing to do with it
                answer.set_exception(error)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        wake_at = self._state.wake_at
        if self._timer is not None:
            if self._timer.when() == wake_at:
                return
            self._timer.cancel()
        self._timer = None if wake_at is None else self._loop.call_at(wake_at, self._time_passed)

    def _time_passed(self) -> None:
        self._timer = None
        self._take(Tick())

    # --- from the beginning to the end --------------------------------------------------------------------------------

    async def run(self) -> None:
        """Load, then write what there is to write, until the segment is over or a write fails."""
        checking: asyncio.Task[None] | None = None
        try:
            loading = retrying(
                backoff(self._env.rng, LOAD_RETRY_FIRST_S, LOAD_RETRY_MOST_S),
                on=Exception,  # whatever it is, the other partitions of this broker have nothing to do with it
                stop=when(lambda: self.partition.is_over),
                told=self._note_trouble,
            )
            await loading(self._load)
            self._begin()
            checking = self._loop.create_task(self._drop_deleted())
            while self.is_active and not self.partition.is_over:
                if self._round or self._snapshots.under_way:
                    await self._write_round()
                else:
                    await self._work.wait(self.partition.changed)
        except (SeaweedMQError, TimeoutError) as error:
            log.info("%s: the coordinator ends: %s", self.partition.segment, error or "no time left to commit")
        finally:
            self._end()
            if checking is not None:
                checking.cancel()  # without a wait: the next coordinator is to be there at once

    async def _drop_deleted(self) -> None:
        """Drop offsets of deleted topics, of those that went while this partition had no coordinator as well."""
        while True:
            await self._is_doubtful.wait()
            self._is_doubtful.clear()
            topics, self._doubtful = self._doubtful, set()
            for topic in sorted(topics):
                asking = retrying(backoff(self._env.rng, LOAD_RETRY_FIRST_S, LOAD_RETRY_MOST_S), on=SeaweedMQError)
                topic_id: bytes | None = await asking(self._topic_ids.current, topic)
                if not self.is_active:
                    return
                self._take(TopicsDeleted({topic: topic_id}))

    async def _load(self) -> None:
        state = GroupShard(self._limits, self._memory)
        try:
            kept = await self._log.load()
            for number, (key, value) in enumerate(kept.latest.items()):
                try:
                    record = decode_record(key, value)
                except Corrupt as error:
                    log.error("%s: key %r is left out, it cannot be read: %s", self.partition.segment, key[:80], error)
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
        now, self._round = self._round, _Round()
        self._is_writing = True
        try:
            self._snapshots.begin_if_due(self.partition.end, self._state.snapshot, self._loop.time())
            self._snapshots.note(now.pairs)
            piece = self._snapshots.piece()
            if now.pairs or piece:
                await self._write([*now.pairs, *piece])
            elif not self.partition.is_sure:
                await self._write([encode_record(NOTHING)])
        finally:
            self._is_writing = False
        self._say(now.answers)
        mark = self._snapshots.take_mark()
        if mark is not None:
            self._raise_mark(mark)

    async def _write(self, pairs: Sequence[Pair]) -> None:
        """Append and have it committed."""
        async with asyncio.timeout(WRITE_TIMEOUT_S):
            end = await self._log.append(pairs, self._env.wall_us())
            await self.partition.committed(end)

    def _begin(self) -> None:
        self.stage = Stage.ACTIVE
        self._set_timer()
        self.topics_deleted(topic for topic, known in self._state.topic_ids() if known != self._topic_ids.known(topic))

    def _end(self) -> None:
        self.stage = Stage.OVER
        self._state.close()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for answer, _ in waiting.values():
            if not answer.done():
                answer.set_exception(self._moved())
                answer.exception()  # who was just about to wait may have an error of its own

    def _note_trouble(self, attempt: int, error: BaseException) -> None:
        is_expected = isinstance(error, SeaweedMQError)
        log.log(
            logging.WARNING if attempt == 1 else logging.DEBUG,
            "%s: the coordinator can not load at the moment, trying on: %s",
            self.partition.segment,
            error,
            exc_info=None if is_expected else error,
        )
