"""The bundler of a broker incarnation: it puts the frames of all its segments into one sequence of bundles.

It performs what ``core.segment.bundling``, ``bundle_puts`` and ``bundle_ledger`` decide: PUTs of bundles, several at a
time, second PUTs of slow ones, log objects, deletions. No rule depends on the time that a request takes.

A store that fails holds publishers up: ``failure`` has the reason and the remedy until a request succeeds. Each request
has a deadline and is retried after a pause. Memory stays bounded by the segments, whose frames the bundler refers to.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

from seaweedmq.broker.bundles.bundle_deleter import BundleDeleter
from seaweedmq.broker.bundles.log_content import LogContent, create_log
from seaweedmq.broker.bundles.source import BundleSource
from seaweedmq.broker.bundles.tails import Tails
from seaweedmq.codec.bundle import encode_bundle
from seaweedmq.core.segment.bundle_ledger import BundleLedger, LedgerLimits, Roll
from seaweedmq.core.segment.bundle_puts import BundlePuts, EndSequence, Put, PutAction, PutAnswer, RaiseDone, ReadHeader
from seaweedmq.core.segment.bundling import BundleCutter, BundleLimits, PendingFrame, PutBundle, WriteLog
from seaweedmq.core.segment.segment_log import LogEntry
from seaweedmq.errors import AlreadyExists, StorageFailed
from seaweedmq.model.bundle import BundleRun, EntryHeader, EntryKind
from seaweedmq.model.segment import ReplicaKey
from seaweedmq.ports import Buffers, Environment, Objects
from seaweedmq.runtime.retrying import backoff, retrying, when
from seaweedmq.storage.bundles.entries import SequenceEntries, new_nonce

log = logging.getLogger(__name__)

PUT_TIMEOUT_S: Final = 10.0
"""Deadline in seconds of one PUT with the client's own retries. Then publishers get the reason, and it is retried."""
RETRY_S_MAX: Final = 2.0
"""Longest pause in seconds after a failed request: writing resumes so soon after the store does."""
TICK_S: Final = 1.0
"""Longest pause in seconds between two looks for old frames that have to be rolled."""


@dataclass(frozen=True, slots=True)
class _Bundle:
    """A bundle that is being put."""

    content: Buffers
    runs: tuple[BundleRun, ...]
    nonce: bytes


class Bundler:
    """The sequence of one broker incarnation, from entry 1 on; entry 0 was put before the broker registered."""

    def __init__(
        self,
        objects: Objects,
        broker_id: str,
        env: Environment,
        *,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
        on_ended: Callable[[], None] = lambda: None,
        cuts: BundleLimits | None = None,
        ledger: LedgerLimits | None = None,
    ) -> None:
        """Create a bundler; ``run`` does its work.

        Args:
            objects: The object store.
            broker_id: Id of the broker, which no other incarnation has.
            env: Clocks and randomness.
            spawn: Function that runs a request as a task; an unhandled error stops the broker.
            on_ended: Called after all segments, once another process has ended the sequence.
            cuts: Limits of bundles.
            ledger: Limits of rolls and checkpoints.
        """
        self.failure: StorageFailed | None = None
        """The reason why the last request failed; None once one has succeeded."""
        self._objects = objects
        self._entries = SequenceEntries(objects, broker_id)
        self._env = env
        self._spawn = spawn
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._cutter = BundleCutter(cuts or BundleLimits())
        self._puts = BundlePuts()
        ledger = ledger or LedgerLimits()
        self._checkpoint_every = ledger.checkpoint_every
        self._ledger = BundleLedger(ledger, now=self._loop.time())
        self._tails = Tails()
        self._sources: dict[ReplicaKey, BundleSource] = {}
        self._closing: set[ReplicaKey] = set()
        """Segments that are closed, some of whose frames are in no log object yet."""
        self._wanted: dict[ReplicaKey, int] = {}
        """Offset up to which each of these segments is rolled at once."""
        self._bundles: dict[int, _Bundle] = {}
        self._done_below = 1
        self._failed_puts: dict[int, int] = {}
        self._pause_s = backoff(env.rng, 0.1, RETRY_S_MAX)
        self._wake = asyncio.Event()
        self._wake_at: float | None = None
        self._deleter = BundleDeleter(
            self._entries, pause_s=self._pause_s, is_over=lambda: self.has_ended, begin=self._begin
        )
        self._is_pressed = False
        """Whether memory is short since the last step."""

    @property
    def broker_id(self) -> str:
        """Id of the broker, which writes the sequence and its log objects."""
        return self._entries.broker_id

    def wall_us(self) -> int:
        """Return the wall clock, microseconds since 1970 UTC."""
        return self._env.wall_us()

    @property
    def has_ended(self) -> bool:
        """Whether another process ended the sequence: nothing more is flushed."""
        return self._puts.ended_at is not None

    def open(self, source: BundleSource) -> None:
        """Take a segment; one at a time has a key."""
        self._sources[source.key] = source

    def add(self, key: ReplicaKey, frames: Sequence[PendingFrame], *, is_stored: bool) -> None:
        """Take frames of an open segment, in order. ``is_stored``: acknowledgements wait for the store."""
        now = self._loop.time()
        for frame in frames:
            self._cutter.add(key, frame, now, is_stored=is_stored)
        self._reschedule()

    def hurry(self) -> None:
        """Put what is pending of all segments at once."""
        self._cutter.hurry()
        self._reschedule()

    def roll(self, key: ReplicaKey, end_offset: int) -> None:
        """Write what bundles hold of a segment below an offset into log objects at once."""
        self._wanted[key] = max(end_offset, self._wanted.get(key, 0))
        self._wake.set()

    def relieve(self) -> None:
        """Roll half of what bundles hold, the largest segments first: the memory of the broker is full."""
        self._is_pressed = True
        self._wake.set()

    def release(self, key: ReplicaKey, below: int) -> None:
        """Note that a follower's frames below an offset are no longer needed: the primary has flushed them."""
        self._ledger.release(key, below)
        if not self._ledger.is_pinned(key) and self._tails.end_of(key) <= below:
            self._forget(key)

    def discard(self, key: ReplicaKey) -> None:
        """Forget what is pending of a segment and in bundles: the bundles of another broker have it."""
        self._cutter.drop(key)
        self.release(key, self._tails.end_of(key))

    def remove(self, key: ReplicaKey) -> None:
        """Take nothing more of a segment that was discarded."""
        self._sources.pop(key, None)

    def close_segment(self, key: ReplicaKey) -> int:
        """Take nothing more of a segment. What bundles hold is rolled; its source answers until then.

        Returns the end of the segment in bundles, which rises no more.
        """
        end = self._tails.end_of(key)
        self._cutter.drop(key)
        self._closing.add(key)
        self._wanted[key] = end
        self._settle(key)
        self._wake.set()
        return end

    async def run(self) -> None:
        """Cut, put, roll and delete until cancelled, or the sequence ends."""
        while not self.has_ended:
            self._wake.clear()
            self._wake_at = self._step()
            try:
                async with asyncio.timeout_at(self._wake_at):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _reschedule(self) -> None:
        due_s = self._cutter.due_s()
        if due_s is not None and (self._wake_at is None or due_s < self._wake_at):
            self._wake.set()

    def _step(self) -> float:
        """Do what is due, and return the time of the next step."""
        now = self._loop.time()
        self._perform(self._puts.second_puts(now))
        for action in self._cutter.cut(now):
            if isinstance(action, WriteLog):
                self._begin(self._write_log(action.run), f"write a log object of {action.run.key}")
            else:
                self._bundle(action, now)
        pressed = self._ledger.largest(self._ledger.pinned_bytes // 2) if self._is_pressed else ()
        self._is_pressed = False
        for roll in self._ledger.rolls(now, {*self._wanted, *pressed}):
            self._begin(self._roll(roll), f"roll {roll.key}")
        times = (self._cutter.due_s(), self._puts.second_put_s(), now + TICK_S)
        return min(time for time in times if time is not None)

    def _bundle(self, cut: PutBundle, now: float) -> None:
        ledger, number = self._ledger, cut.number
        kind = ledger.next_kind(number, now)
        floor = ledger.floor
        runs = (*cut.references, *cut.runs)
        nonce = new_nonce(self._env.rng)
        header = EntryHeader(
            kind=kind,
            number=number,
            floor=floor,
            done=self._puts.done_below,
            checkpoint=number if kind is EntryKind.FULL_CHECKPOINT else ledger.checkpoint,
            nonce=nonce,
            time_us=self._env.wall_us(),
            checkpoint_every=self._checkpoint_every,
        )
        encoded = encode_bundle(
            header,
            [
                *((run, ()) for run in cut.references),
                *((run, _buffers(self._sources[run.key].entries(run.base_offset, run.end_offset))) for run in cut.runs),
            ],
            carried=ledger.carried(kind),
            tails=self._tails.cut(kind, runs, ledger.tail_ends(kind, runs), self._sources),
        )
        ledger.cut(number, kind, encoded.index.runs, floor, now)
        self._bundles[number] = _Bundle(encoded.buffers, encoded.index.runs, nonce)
        self._perform(self._puts.begin(number, nonce, now))

    def _perform(self, actions: Sequence[PutAction]) -> None:
        for action in actions:
            match action:
                case Put(number):
                    self._begin(self._put(number), f"put bundle {number}")
                case ReadHeader(number):
                    self._begin(self._read_header(number), f"read bundle {number}")
                case RaiseDone(number):
                    self._raise_done(number)
                case EndSequence(number):
                    self._end(number)

    async def _put(self, number: int) -> None:
        bundle = self._bundles.get(number)
        if bundle is None:
            return
        try:
            await self._entries.create(number, bundle.content, timeout_s=PUT_TIMEOUT_S)
            answer = PutAnswer.CREATED
            self._note_success()
        except AlreadyExists:
            answer = PutAnswer.EXISTS
        except StorageFailed as error:
            await self._pause(number, error)
            answer = PutAnswer.NO_ANSWER
        self._perform(self._puts.answered(number, answer, self._loop.time()))
        self._wake.set()

    async def _read_header(self, number: int) -> None:
        while number in self._bundles:
            try:
                header = await self._entries.header(number)
            except StorageFailed as error:
                await self._pause(number, error)
                continue
            self._note_success()
            self._perform(self._puts.header_read(number, header))
            self._wake.set()
            return

    async def _pause(self, number: int, error: StorageFailed) -> None:
        self._note_failure(error)
        failed = self._failed_puts[number] = self._failed_puts.get(number, 0) + 1
        await asyncio.sleep(self._pause_s(failed))

    def _raise_done(self, below: int) -> None:
        ends: dict[ReplicaKey, int] = {}
        for number in range(self._done_below, below):
            for run in self._bundles.pop(number).runs:
                ends[run.key] = run.end_offset
            self._failed_puts.pop(number, None)
            self._cutter.put_done()
        self._done_below = below
        self._ledger.done(below)
        self._deleter.add(self._ledger.take_deletable())
        for key, end in ends.items():
            if key in self._sources:
                self._sources[key].on_flushed(end)
            self._settle(key)

    def _end(self, number: int) -> None:
        log.error(
            "sequence ended: bundle %s was fenced by another process; broker %s acknowledges nothing more",
            *(self._entries.name(number), self._entries.broker_id),
        )
        self._bundles.clear()
        for source in list(self._sources.values()):
            source.on_ended()
        self._wake.set()
        self._on_ended()

    async def _write_log(self, run: BundleRun) -> None:
        """Create a log object to which the next bundle refers."""
        source = self._sources.get(run.key)
        if source is not None:
            content = source.log_content(run.base_offset, run.end_offset)
            if not await self._create_log(content):
                return
            source.on_log(content.file)
        self._cutter.log_written(run)
        self._wake.set()

    async def _roll(self, roll: Roll) -> None:
        source = self._sources.get(roll.key)
        if source is None:
            self._ledger.rolled(roll)
            return
        content = source.log_content(roll.base_offset, roll.end_offset)
        if await self._create_log(content):
            self._ledger.rolled(roll)
            source.on_log(content.file)
            self._settle(roll.key)
            self._wake.set()

    async def _create_log(self, content: LogContent) -> bool:
        """Create a log object, retrying until it exists; return False if the sequence ends before that."""
        trying = retrying(
            self._pause_s,
            on=StorageFailed,
            stop=when(lambda: self.has_ended),
            on_retry=lambda _, error: self._note_failure(error),
        )
        try:
            await trying(create_log, self._objects, content, timeout_s=PUT_TIMEOUT_S)
        except StorageFailed:
            return False  # reported by ``failure``, and nothing waits for it any longer
        self._note_success()
        return True

    def _settle(self, key: ReplicaKey) -> None:
        """Stop rolling at once if that is done, and forget a closed segment without frames in bundles."""
        wanted = self._wanted.get(key, 0)
        if self._ledger.is_pinned_below(key, wanted) or self._tails.end_of(key) < wanted:
            return
        self._wanted.pop(key, None)
        if key in self._closing and not self._ledger.is_pinned(key):
            self._forget(key)

    def _forget(self, key: ReplicaKey) -> None:
        self._ledger.forget(key)
        self._tails.forget(key)
        if key in self._closing:
            self._closing.discard(key)
            del self._sources[key]

    def _note_failure(self, error: BaseException) -> None:
        assert isinstance(error, StorageFailed)
        if self.failure is None:
            log.error("write failed: broker %s: %s; retrying", self._entries.broker_id, error)
        self.failure = error
        for source in list(self._sources.values()):
            source.on_failure()

    def _note_success(self) -> None:
        if self.failure is not None:
            self.failure = None
            log.info("write resumed: broker %s", self._entries.broker_id)
            for source in list(self._sources.values()):
                source.on_failure()

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._spawn(work, name)


def _buffers(entries: Sequence[LogEntry]) -> list[bytes | memoryview]:
    return [part for entry in entries for part in (entry.header, entry.payload)]
