"""Native users: publishers of keyed records with unique values, and subscribers, that note all their observations."""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from seaweedmq import aio
from seaweedmq.client.config import ClientConfig
from seaweedmq.client.publish.futures import RecordFuture as Sending
from seaweedmq.errors import Closed, DeadlineExceeded, SeaweedMQError, Unavailable
from tests.faults.users.group import Group, acknowledged, briefly
from tests.faults.users.member import PADDING
from tests.faults.users.members import Members
from tests.faults.users.own_clock import OwnClock
from tests.support.history import History, Outcome, Polled, Sent, Violation, check

KEYS = 24
SEGMENTS = 3
RECORDS_PER_S = 1_000.0
"""Average rate of each topic."""
PAUSE_S = 0.02
"""Average seconds between two bursts of one publisher."""
SETTLE_TIMEOUT_S = 60.0
UNCLEAR = (Closed, DeadlineExceeded, Unavailable)
"""Errors after which a record may be stored or not; after any other error it is not."""
CLIENT = ClientConfig(delivery_timeout_s=90.0, close_timeout_s=SETTLE_TIMEOUT_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPlan:
    label: str
    replicas: int
    durability: str


REPLICATED = TopicPlan(label="replicated2", replicas=2, durability="replicated")
STORED = TopicPlan(label="stored2", replicas=2, durability="stored")
SINGLE = TopicPlan(label="stored1", replicas=1, durability="stored")
ALL_PLANS = (REPLICATED, STORED, SINGLE)


@dataclass(slots=True)
class Waits:
    """Waits of users for acknowledgements, in seconds of their own clock."""

    gap_s: float = 0.0
    """Longest time for which a key had unacknowledged records and no acknowledgement."""
    slowest_s: float = 0.0
    """Longest time from a send to its acknowledgement."""
    _since: dict[bytes, float] = field(default_factory=dict)
    _under_way: dict[bytes, int] = field(default_factory=dict)

    def on_send(self, key: bytes, now: float) -> None:
        if not self._under_way.get(key):
            self._since[key] = now
        self._under_way[key] = self._under_way.get(key, 0) + 1

    def on_outcome(self, key: bytes, sent_at: float, now: float) -> None:
        self.gap_s = max(self.gap_s, now - self._since[key])
        self.slowest_s = max(self.slowest_s, now - sent_at)
        self._since[key] = now
        self._under_way[key] -= 1


class TopicUsers:
    def __init__(self, name: str, plan: TopicPlan, seed: str, records_per_s: float) -> None:
        self.name = name
        self.full_name = name
        """Name with the namespace."""
        self.plan = plan
        self.history = History()
        self.waits = Waits()
        self.errors: list[str] = []
        """Errors that clients report to users."""
        self._rng = random.Random(f"{seed} {name}")
        self._burst_max = max(1, round(2 * records_per_s * PAUSE_S) - 1)
        self._open = 0
        """Number of records without an outcome."""
        self._readers = 0

    @property
    def acked(self) -> int:
        return len(self.history.sent)

    def _record(self, number: int) -> tuple[bytes, bytes]:
        """Return key and value of a record, whose values are unique."""
        key = b"key-%d" % self._rng.randrange(KEYS)
        return key, f"{self.name}/{number}".encode() + PADDING * self._rng.randrange(100)

    def _note_sent(self, number: int, outcome: Outcome, **fields: Any) -> None:
        """Note the outcome of a record. ``fields``: the others of ``Sent``."""
        self.history.sent.append(Sent(producer=self.name, sequence=number, outcome=outcome, **fields))

    def _new_reader(self) -> str:
        self._readers += 1
        return f"{self.name} reader {self._readers}"


U = TypeVar("U", bound=TopicUsers)
M = TypeVar("M", bound=Members)


class NativeTopicUsers(TopicUsers):
    def __init__(self, name: str, plan: TopicPlan, seed: str, records_per_s: float, clock: OwnClock) -> None:
        super().__init__(name, plan, seed, records_per_s)
        self._clock = clock
        self._stop = asyncio.Event()
        self._settled = asyncio.Event()

    # --- publishing ---------------------------------------------------------------------------------------------------

    async def publish(self, client: aio.Client) -> None:
        """Send until stopped, then wait until every record has its outcome."""
        number = 0
        async with client.publisher(self.name) as publisher:
            while not self._stop.is_set():
                for _ in range(self._rng.randint(1, self._burst_max)):
                    key, value = self._record(number)
                    self.waits.on_send(key, self._clock.now_s())
                    self._note(await publisher.send(value, key=key), number, key, value, self._clock.now_s())
                    number += 1
                await asyncio.sleep(self._rng.uniform(0, 2 * PAUSE_S))
            async with asyncio.timeout(SETTLE_TIMEOUT_S):
                while self._open:
                    self._settled.clear()
                    await self._settled.wait()

    def stop(self) -> None:
        self._stop.set()

    def _note(self, sent: Sending, number: int, key: bytes, value: bytes, at: float) -> None:
        self._open += 1

        def on_outcome(done: "Future[aio.Receipt]") -> None:
            self._open -= 1
            self._settled.set()
            self.waits.on_outcome(key, at, self._clock.now_s())
            error = done.exception()
            outcome, segment, offset = Outcome.ACKED, None, None
            if error is None:
                segment, offset = done.result()
            else:
                outcome = Outcome.UNKNOWN if isinstance(error, UNCLEAR) else Outcome.REFUSED
                self.errors.append(f"record {number} of {self.name}: {error!r}")
            self._note_sent(number, outcome, key=key, value=value, segment=segment, offset=offset)

        sent.add_done_callback(on_outcome)

    # --- reading ------------------------------------------------------------------------------------------------------

    async def follow(self, client: aio.Client, lives_s: tuple[float, float]) -> None:
        """Read from the earliest record on, until cancelled; restart under another name at times."""
        while True:
            try:
                async with asyncio.timeout(self._rng.uniform(*lives_s)):
                    await self._read(client, None)
            except TimeoutError:
                continue
            except SeaweedMQError as error:
                self.errors.append(f"subscriber of {self.name}: {error!r}")

    async def read_all(self, client: aio.Client) -> str:
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            return await self._read(client, "latest")

    async def _read(self, client: aio.Client, stop_at: Literal["latest"] | None) -> str:
        reader = self._new_reader()
        async with client.subscriber(self.name, start="earliest", stop_at=stop_at) as subscriber:
            async for message in subscriber:
                self.history.polled.append(
                    Polled(
                        reader=reader,
                        segment=message.segment,
                        offset=message.offset,
                        key=message.key or b"",
                        value=message.value,
                    )
                )
        return reader


class TopicsWorkload(Generic[U, M]):
    """Users of several topics, and a group on all of them."""

    topics: Sequence[U]
    group: M
    _client: aio.Client
    _members: int
    """Number of the group's members at the beginning."""

    async def _create_topics(self, bootstrap: str, **settings: Any) -> None:
        self._client = await aio.connect(bootstrap, config=CLIENT)
        try:
            for topic in self.topics:
                await self._client.admin.create_topic(
                    topic.full_name, replicas=topic.plan.replicas, durability=topic.plan.durability, **settings
                )
        except BaseException:
            await self._client.close()
            raise

    def _running(self) -> Sequence["asyncio.Future[None]"]:
        """Return the work of the users."""
        raise NotImplementedError

    async def until_flowing(self, more: int = 20) -> None:
        """Wait until every topic had some more records acknowledged. Raises TimeoutError."""
        goals = [topic.acked + more for topic in self.topics]
        async with asyncio.timeout(SETTLE_TIMEOUT_S):
            while any(topic.acked < goal for topic, goal in zip(self.topics, goals, strict=True)):
                for running in self._running():
                    if running.done():
                        running.result()
                await asyncio.sleep(0.02)

    def forget_waits(self) -> None:
        """Measure from now on: the first connections' setup does not count as an effect of a fault."""
        for topic in self.topics:
            topic.waits.gap_s = topic.waits.slowest_s = 0.0

    async def _until_delivered(self) -> dict[str, list[Sent]]:
        """Wait until the group got what was acknowledged; return the records by topic, as members write them."""
        sent = {topic.name: briefly(topic.history.sent) for topic in self.topics}
        wanted = {name: acknowledged(records) for name, records in sent.items()}
        with contextlib.suppress(TimeoutError):  # later rules report missing records as lost
            await self.group.until_delivered(wanted, SETTLE_TIMEOUT_S)
        return sent

    async def forget(self) -> None:
        for topic in self.topics:
            await self._client.admin.delete_topic(topic.full_name)


class Workload(TopicsWorkload[NativeTopicUsers, Group]):
    """Native users of several topics, as an async context manager that connects them."""

    def __init__(
        self,
        bootstrap: str,
        plans: Sequence[TopicPlan],
        *,
        seed: str,
        directory: Path,
        records_per_s: float = RECORDS_PER_S,
        members: int = 0,
        reader_lives_s: tuple[float, float] = (3, 30),
    ) -> None:
        """Create the users. ``members``: of a consumer group on all the topics; they write delivered records to
        ``directory``."""
        self._bootstrap = bootstrap
        self._reader_lives_s = reader_lives_s
        self._clock = OwnClock()
        self.topics = [
            NativeTopicUsers(f"faults/{seed}-{plan.label}", plan, seed, records_per_s, self._clock) for plan in plans
        ]
        self.group = Group(
            bootstrap=bootstrap,
            directory=directory,
            name=f"faults-{seed}",
            topics=[topic.name for topic in self.topics],
        )
        self._members = members
        self._publishing: list[asyncio.Task[None]] = []
        self._background: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Workload":
        await self._create_topics(self._bootstrap, segments=SEGMENTS)
        self._background = [asyncio.create_task(self._clock.watch(), name="own clock")]
        for topic in self.topics:
            self._publishing.append(asyncio.create_task(topic.publish(self._client), name=f"publish {topic.name}"))
            self._background.append(
                asyncio.create_task(topic.follow(self._client, self._reader_lives_s), name=f"follow {topic.name}")
            )
        try:
            await self.group.__aenter__()
            await self.group.add(self._members)
            await self.group.until_joined()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in (*self._publishing, *self._background):
            task.cancel()
        await asyncio.gather(*self._publishing, *self._background, return_exceptions=True)
        await self.group.__aexit__()
        async with asyncio.timeout(5):
            await self._client.close()

    @property
    def loop_lag_s(self) -> float:
        """Return the longest time in seconds for which this process did not run, or computed without a break."""
        return self._clock.longest_s

    def _running(self) -> Sequence["asyncio.Future[None]"]:
        return [*self._publishing, *self._background]

    def forget_waits(self) -> None:
        super().forget_waits()
        self._clock.longest_s = 0.0

    async def finish(self) -> list[Violation]:
        """End publishing, read everything once more, and judge."""
        for topic in self.topics:
            topic.stop()
        await asyncio.gather(*self._publishing)
        violations = []
        for topic in self.topics:
            reader = await topic.read_all(self._client)
            violations += await asyncio.to_thread(check, topic.history, complete=[reader])
            violations += [Violation("error", error) for error in topic.errors]
        if self._members:
            violations += await self._finish_group()
        return violations

    async def _finish_group(self) -> list[Violation]:
        sent = await self._until_delivered()
        violations = await self.group.stop()
        for name, records in sent.items():
            violations += await asyncio.to_thread(self.group.check, name, records)
        return violations
