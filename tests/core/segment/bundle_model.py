"""A writer of bundles, three leaders that end its sequence, and an object store that answers late, twice or never.

All decisions are those of ``core.segment``; the model adds the store and the network, in memory. Requests may be
applied at any later time, also after their sender gave up, and twice; replies may be lost. The writer may be frozen for
any time. ``check`` compares what was acknowledged with what each leader recovered.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from seaweedmq.core.segment.bundle_fence import CreateFence, FenceFound, FenceSearch, ListEntries, ReadEntry
from seaweedmq.core.segment.bundle_ledger import BundleLedger, LedgerLimits, Roll
from seaweedmq.core.segment.bundle_puts import BundlePuts, EndSequence, Put, PutAnswer, RaiseDone, ReadHeader
from seaweedmq.core.segment.bundle_recovery import (
    DeleteEntries,
    LeftoverLog,
    Leftovers,
    ReadIndexes,
    Recovered,
    RecoveredSegment,
    Recovery,
    SearchAgain,
    WrittenOut,
)
from seaweedmq.core.segment.bundling import BundleCutter, BundleLimits, PendingFrame, PutBundle, WriteLog
from seaweedmq.core.segment.producers import ProducerTable
from seaweedmq.model.bundle import (
    BundledFrame,
    BundleRun,
    BundleSection,
    EntryHeader,
    EntryIndex,
    EntryKind,
    SegmentTail,
)
from seaweedmq.model.messages.publish import FrameAck
from seaweedmq.model.segment import ReplicaKey
from tests.core.segment.late_store import LOST, Store

KEYS = tuple(ReplicaKey(7, segment) for segment in range(3))
CUTS = BundleLimits(
    interval_s=0.1, patience_s=0.3, bundle_bytes=10, bundles_max=4, direct_bytes=12, log_bytes=16, logs_max=2
)
LEDGERS = tuple(
    LedgerLimits(roll_bytes=size, roll_age_s=2.0, pinned_bytes_max=24, checkpoint_every=every, full_age_s=3.0)
    for size in (1, 12)
    for every in (2, 3)
)
STEP_S = 0.03
REQUESTS_MAX = 60
NEVER_S = 1e9
"""Time that no history reaches."""


class Broken(AssertionError):
    """A history that loses, doubles or reorders what was acknowledged."""


class Writer:
    """A broker that bundles frames of three segments."""

    def __init__(self, store: Store, rng: random.Random, world: "World") -> None:
        self.store, self.rng, self.world = store, rng, world
        self.cutter = BundleCutter(CUTS)
        self.puts: BundlePuts = world.make_puts()
        self.limits = rng.choice(LEDGERS)
        self.ledger: BundleLedger = world.make_ledger(self.limits)
        self.frames: dict[ReplicaKey, list[PendingFrame]] = {key: [] for key in KEYS}
        self.tables = {key: ProducerTable() for key in KEYS}
        self.acknowledged = dict.fromkeys(KEYS, 0)
        self.done_below = 1
        self.floor = 0
        self.entries: dict[int, EntryIndex] = {}
        self.nonces = 0
        store.entries[0] = EntryIndex(header=self._header(0, EntryKind.FULL_CHECKPOINT, 0))

    def end(self, key: ReplicaKey) -> int:
        return self.frames[key][-1].end_offset if self.frames[key] else 0

    def append(self) -> None:
        key = self.rng.choice(KEYS[: self.rng.randint(1, 3)])
        producer = self.rng.randrange(1, 3)
        known = self.tables[key].state(producer)
        count = self.rng.randint(1, 3)
        frame = BundledFrame(producer, 0, known.next_sequence if known else 0, count)
        pending = PendingFrame(self.end(key), self.rng.randint(1, 6), frame)
        self.frames[key].append(pending)
        self.tables[key].follow(producer, 0, FrameAck(frame.first_sequence, count, pending.base_offset))
        self.cutter.add(key, pending, self.world.now, is_stored=key is not KEYS[2])

    def step(self) -> None:
        now = self.world.now
        if self.puts.ended_at is not None:
            return
        for number in [action.number for action in self.puts.second_puts(now) if isinstance(action, Put)]:
            self._put(number)
        for action in self.cutter.cut(now):
            if isinstance(action, WriteLog):
                self._create_log(action.run)
            else:
                self._bundle(action)
        for roll in self.ledger.rolls(now):
            self._roll(roll)

    def _bundle(self, cut: PutBundle) -> None:
        now, number = self.world.now, cut.number
        runs = (*cut.references, *(replace(run, position=200 + i) for i, run in enumerate(cut.runs)))
        kind = self.ledger.next_kind(number, now)
        carried = self.ledger.carried(kind)
        tails = tuple(self._tail(key, end) for key, end in self.ledger.tail_ends(kind, runs).items())
        floor = self.ledger.floor
        raises_floor, self.floor = floor > self.floor, floor
        self.ledger.cut(number, kind, runs, floor, now)
        self._delete()
        own = BundleSection(number=number, runs=runs)
        entry = EntryIndex(header=self._header(number, kind, floor), sections=(own, *carried), tails=tails)
        self.entries[number] = entry
        self._perform(self.puts.begin(number, entry.header.nonce, now))
        if raises_floor and self.rng.random() < 0.03:
            self.world.kill()

    def _tail(self, key: ReplicaKey, end: int) -> SegmentTail:
        states = self.tables[key].snapshot(below=end)
        return SegmentTail(topic_uid=key.topic_uid, segment=key.segment, end_offset=end, producers=states)

    def _header(self, number: int, kind: EntryKind, floor: int) -> EntryHeader:
        self.nonces += 1
        return EntryHeader(
            kind=kind,
            number=number,
            floor=floor,
            done=self.puts.done_below if number else 0,
            checkpoint=self.ledger.checkpoint,
            nonce=self.nonces.to_bytes(16, "little"),
            time_us=0,
            checkpoint_every=self.limits.checkpoint_every,
        )

    def _perform(self, actions: Any) -> None:
        for action in actions:
            match action:
                case Put(number):
                    self._put(number)
                case ReadHeader(number):
                    self._read(number)
                case RaiseDone(number):
                    self._raise_done(number)
                case EndSequence():
                    pass  # acknowledges nothing from here on: ``ended_at`` is set

    def _put(self, number: int) -> None:
        entry = self.entries[number]

        def answered(result: Any) -> None:
            if result is LOST:
                answer = self.rng.choice((PutAnswer.NO_ANSWER, PutAnswer.CONFLICT))
            else:
                answer = PutAnswer.CREATED if result else PutAnswer.EXISTS
            self.world.when_awake(lambda: self._perform(self.puts.answered(number, answer, self.world.now)))

        self.store.send(
            lambda: self.store.put(entry), answered, is_write=True, by_writer=True, is_slow=self.rng.random() < 0.25
        )

    def _read(self, number: int) -> None:
        def answered(entry: Any) -> None:
            if entry is LOST:
                self._read(number)
            else:
                header = None if entry is None else entry.header
                self.world.when_awake(lambda: self._perform(self.puts.header_read(number, header)))

        self.store.send(lambda: self.store.entries.get(number), answered)

    def _raise_done(self, below: int) -> None:
        for number in range(self.done_below, below):
            for run in self.entries[number].runs:
                self.acknowledged[run.key] = max(self.acknowledged[run.key], run.end_offset)
            self.cutter.put_done()
        self.done_below = max(self.done_below, below)
        self.ledger.done(below)
        self._delete()

    def _delete(self) -> None:
        for number in self.ledger.take_deletable():
            self.store.send(
                lambda number=number: self.store.entries.pop(number, None),
                None,
                is_write=True,
                by_writer=True,
                is_slow=self.rng.random() < 0.7,
            )

    def _create_log(self, run: BundleRun) -> None:
        def answered(result: Any) -> None:
            if result is LOST:
                self._create_log(run)
            else:
                self.world.when_awake(lambda: self.cutter.log_written(run))

        self.store.send(
            lambda: self.store.logs.add((run.key, run.base_offset, run.end_offset)),
            answered,
            is_write=True,
            by_writer=True,
        )

    def _roll(self, roll: Roll) -> None:
        def answered(result: Any) -> None:
            if result is LOST:
                self._roll(roll)
            else:
                self.world.when_awake(lambda: self.ledger.rolled(roll))

        self.store.send(
            lambda: self.store.logs.add((roll.key, roll.base_offset, roll.end_offset)),
            answered,
            is_write=True,
            by_writer=True,
        )


class Leader:
    """A leader that fences the writer, recovers its segments and, maybe, turns its leftovers into log objects."""

    def __init__(self, store: Store, world: "World", name: int, *, writes_leftovers: bool) -> None:
        self.store, self.world, self.name = store, world, name
        self.search: FenceSearch = world.make_search()
        self.recovery = Recovery()
        self.writes_leftovers = writes_leftovers
        self.fence: FenceFound | None = None
        self.found: dict[ReplicaKey, RecoveredSegment] | None = None
        self.is_done = False
        self._perform(self.search.begin())

    def _perform(self, action: Any) -> None:
        """Perform an action of the search, perhaps after this leader was frozen."""
        rng = self.world.rng
        if rng.random() < (0.3 if isinstance(action, CreateFence) else 0.1):
            self.world.timers.append((self.world.now + rng.random() * 4, lambda: self._perform_now(action)))
        else:
            self._perform_now(action)

    def _perform_now(self, action: Any) -> None:
        match action:
            case ListEntries():
                self._list(self._listed)
            case ReadEntry(number):
                self._ask(
                    lambda: self.store.entries.get(number),
                    lambda e: self._perform(self.search.header_read(number, None if e is None else e.header)),
                )
            case CreateFence(number):
                self._create(number)
            case FenceFound():
                self.fence = action
                self._recover(self.recovery.begin(action))

    def _listed(self, numbers: set[int]) -> None:
        self._perform(self.search.listed(numbers))

    def _list(self, then: Callable[[set[int]], None]) -> None:
        """List in two pages, in any order; between them other requests are applied."""
        is_ascending = self.world.rng.random() < 0.5

        def first_page() -> tuple[int, set[int]]:
            numbers = sorted(self.store.entries)
            split = self.world.rng.choice(numbers) if numbers else -1
            return split, {n for n in numbers if (n <= split) == is_ascending}

        def second_page(first: tuple[int, set[int]]) -> None:
            split, page = first
            self._ask(lambda: page | {n for n in self.store.entries if (n <= split) != is_ascending}, then)

        self._ask(first_page, second_page)

    def _ask(self, apply: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.store.send(apply, lambda result: self._ask(apply, then) if result is LOST else then(result))

    def _create(self, number: int) -> None:
        nonce = bytes([255, self.name]) + number.to_bytes(14, "little")
        header = EntryHeader(kind=EntryKind.FENCE, number=number, floor=0, done=0, checkpoint=0, nonce=nonce, time_us=0)

        def answered(result: Any) -> None:
            if result is LOST:
                self._perform(self.search.unanswered(number))
            else:
                self._perform(self.search.created(number) if result else self.search.exists(number))

        self.store.send(lambda: self.store.put(EntryIndex(header=header)), answered, is_write=True)

    def _recover(self, action: Any) -> None:
        match action:
            case ReadIndexes(numbers):
                self._read_indexes(numbers)
            case SearchAgain():
                self._perform(self.search.begin())
            case WrittenOut():
                self._finish({})
            case Recovered(segments):
                self._finish(dict(segments))

    def _read_indexes(self, numbers: tuple[int, ...]) -> None:
        read: dict[int, EntryIndex | None] = {}

        def arrived(number: int, entry: EntryIndex | None) -> None:
            read[number] = entry
            if len(read) == len(numbers):
                self._recover(self.recovery.read(read))

        for number in numbers:
            self._ask(lambda n=number: self.store.entries.get(n), lambda entry, n=number: arrived(n, entry))

    def _finish(self, found: dict[ReplicaKey, RecoveredSegment]) -> None:
        self.found, self.is_done = found, True
        assert self.fence is not None
        self.world.recovered(self.fence.number, found)
        if not self.writes_leftovers:
            return
        readable = {key: covered_end(self.store.logs, key) for key in KEYS}
        ends = {key: segment.end_offset for key, segment in found.items()}
        leftovers: Leftovers = self.world.make_leftovers(found.values(), readable, ends)
        self._work(leftovers, leftovers.begin())

    def _work(self, leftovers: Leftovers, actions: Any) -> None:
        for action in actions:
            match action:
                case LeftoverLog():
                    self._write_leftover(leftovers, action)
                case DeleteEntries():
                    self._list(self._delete_entries)

    def _write_leftover(self, leftovers: Leftovers, log: LeftoverLog) -> None:
        def create() -> bool:
            """Read the runs, which fails if one is absent, and create the log object."""
            entries = self.store.entries
            if any(
                r.number not in entries or r.run.key not in (x.key for x in entries[r.number].runs) for r in log.runs
            ):
                return False
            self.store.logs.add((log.key, log.base_offset, log.end_offset))
            return True

        def answered(result: Any) -> None:
            if result is LOST:
                self._write_leftover(leftovers, log)
            elif result:
                self._work(leftovers, leftovers.written(log))

        self.store.send(create, answered, is_write=True, is_slow=self.world.rng.random() < 0.5)

    def _delete_entries(self, numbers: set[int]) -> None:
        for number in numbers:
            entry = self.store.entries.get(number)
            if entry is not None and (not entry.header.is_fence or self.world.collects_fences):
                self.store.send(lambda n=number: self.store.entries.pop(n, None), None, is_write=True)


@dataclass
class World:
    """One history. The factories of the real code may be replaced by broken ones."""

    seed: int
    conditional: bool = True
    collects_fences: bool = False
    make_puts: Callable[..., BundlePuts] = BundlePuts
    make_ledger: Callable[..., BundleLedger] = BundleLedger
    make_search: Callable[..., FenceSearch] = FenceSearch
    make_leftovers: Callable[..., Leftovers] = Leftovers
    now: float = 0.0
    trace: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.store = Store(self.rng, self.conditional)
        self.sleeping: list[Callable[[], None]] = []
        """Answers that arrived while the writer was frozen."""
        self.awake_at = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        """Actions of leaders that are frozen, and when they are no longer."""
        self.writer = Writer(self.store, self.rng, self)
        self.leaders: list[Leader] = []
        self.results: list[tuple[int, dict[ReplicaKey, RecoveredSegment], dict[ReplicaKey, int]]] = []

    def when_awake(self, event: Callable[[], None]) -> None:
        """Let the writer handle an event, once it is no longer frozen."""
        if self.now < self.awake_at:
            self.sleeping.append(event)
        else:
            event()

    def recovered(self, fence: int, found: dict[ReplicaKey, RecoveredSegment]) -> None:
        """Note what a leader found, checked against the store of this moment."""
        ends = {key: self._recovered_end(key, found.get(key)) for key in KEYS}
        self.trace.append(f"fence {fence} ends {sorted(ends.values())}")
        self.results.append((fence, found, ends))

    def _recovered_end(self, key: ReplicaKey, segment: RecoveredSegment | None) -> int:
        """Return the end up to which log objects and existing bundles have all frames."""
        spans = {(base, end) for owner, base, end in self.store.logs if owner == key}
        for located in segment.runs if segment else ():
            self._check_run(located.run, segment)
            entry = self.store.entries.get(located.number)
            if entry is not None and any(run.base_offset == located.run.base_offset for run in entry.runs):
                spans.add((located.run.base_offset, located.run.end_offset))
        return covered_end({(key, *span) for span in spans}, key)

    def _held_end(self, key: ReplicaKey) -> int:
        """Return the end up to which log objects and bundles have all frames."""
        runs = (run for entry in self.store.entries.values() for run in entry.runs if run.key == key)
        return covered_end(self.store.logs | {(key, run.base_offset, run.end_offset) for run in runs}, key)

    def _check_run(self, run: BundleRun, segment: RecoveredSegment | None) -> None:
        bounds = {frame.base_offset for frame in self.writer.frames[run.key]} | {self.writer.end(run.key)}
        if not {run.base_offset, run.end_offset} <= bounds:
            raise Broken(f"a run of {run.key} has offsets that no frame has")
        truth = [f.frame for f in self.writer.frames[run.key] if run.base_offset <= f.base_offset < run.end_offset]
        if run.frames and list(run.frames) != truth:
            raise Broken(f"a run of {run.key} has other frames, or in another order")
        assert segment is not None
        spans = sorted((each.run.base_offset, each.run.end_offset) for each in segment.runs)
        if any(end > base for (_, end), (base, _) in pairwise(spans)):
            raise Broken(f"frames of {run.key} are in two runs")

    def play(self) -> None:
        """Play the history to its end, in which all requests are answered."""
        rng = self.rng
        leader_at = sorted(rng.randrange(20, 420) for _ in range(3))
        frozen_at = rng.randrange(400)
        for step in range(420):
            self.now += STEP_S * rng.random() * 2
            if step == frozen_at:
                self.awake_at = max(self.awake_at, self.now + rng.choice((0.5, 2.0, 6.0)))
                if rng.random() < 0.4:
                    self.kill()
            self._wake()
            while leader_at and step >= leader_at[0]:
                leader_at.pop(0)
                self.leaders.append(Leader(self.store, self, len(self.leaders), writes_leftovers=rng.random() < 0.6))
            if self.now >= self.awake_at:
                if rng.random() < 0.5:
                    self.writer.append()
                self.writer.step()
            for _ in range(rng.choice((0, 1, 2, 3)) if len(self.store.requests) < REQUESTS_MAX else 20):
                if self.store.requests:
                    self.store.move()
        self.awake_at = NEVER_S if self.awake_at >= NEVER_S else 0.0
        for _ in range(3_000):
            self.now += STEP_S / 3
            self._wake()
            if self.store.requests:
                self.store.move(is_calm=True)
            elif not self.timers:
                break
            if self.now >= self.awake_at:
                self.writer.step()
        else:
            raise Broken("the requests do not come to an end")
        if not all(leader.is_done for leader in self.leaders):
            raise Broken("a leader waits for an answer that no request brings")

    def _wake(self) -> None:
        while self.sleeping and self.now >= self.awake_at:
            self.sleeping.pop(0)()
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer[0] > self.now]
        for _, event in due:
            event()

    def kill(self) -> None:
        """Kill the writer; some of its PUTs, but no deletion, never left its machine."""
        self.awake_at = NEVER_S
        unsent = [r for r in self.store.requests if r.by_writer and r.answer is not None and not r.is_applied]
        for request in unsent:
            if self.rng.random() < 0.7:
                self.store.requests.remove(request)

    def check(self) -> None:
        """Raise Broken if a leader recovered less than was acknowledged by the end, or leaders disagree."""
        for key in KEYS:
            if self.writer.acknowledged[key] > (held := self._held_end(key)):
                raise Broken(f"{key}: {self.writer.acknowledged[key]} acknowledged, {held} held in the end")
        for fence, found, ends in self.results:
            for key in KEYS:
                if self.writer.acknowledged[key] > ends[key]:
                    raise Broken(f"{key}: {self.writer.acknowledged[key]} acknowledged, {ends[key]} recovered")
            for key, segment in found.items():
                if segment.end_offset > ends[key]:
                    raise Broken(f"{key} ends at {segment.end_offset}, but its frames at {ends[key]}")
                if dict(_next_sequences(segment)) != dict(self._sequences_below(key, segment.end_offset)):
                    raise Broken(f"{key}: the producers are not those of offset {segment.end_offset}")
            if fence != self.results[0][0]:
                raise Broken(f"one leader found the fence {self.results[0][0]}, another one {fence}")

    def _sequences_below(self, key: ReplicaKey, end: int) -> Iterator[tuple[int, int]]:
        for pending in self.writer.frames[key]:
            if pending.end_offset <= end:
                yield pending.frame.producer_id, pending.frame.first_sequence + pending.frame.record_count


def _next_sequences(segment: RecoveredSegment) -> Iterator[tuple[int, int]]:
    return ((state.producer_id, state.next_sequence) for state in segment.producers if state.next_sequence)


def covered_end(logs: set[tuple[ReplicaKey, int, int]], key: ReplicaKey) -> int:
    """Return the end of the contiguous offsets from 0 on."""
    covered = 0
    for base, end in sorted((base, end) for owner, base, end in logs if owner == key):
        if base > covered:
            break
        covered = max(covered, end)
    return covered


def run(seed: int, **broken: Any) -> World:
    """Play one history and check it; raises Broken."""
    world = World(seed, **broken)
    world.play()
    world.check()
    return world
