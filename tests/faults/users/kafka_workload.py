"""Users with Kafka clients: idempotent publishers of keyed records, readers, and a group, that note their observations.

librdkafka (confluent-kafka) has its default settings, except those that promises require. Each client has a thread,
members of the group have processes.
"""

import asyncio
import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition

from seaweedmq import aio
from tests.faults.users.kafka_group import KafkaGroup
from tests.faults.users.kafka_member import LOG_LEVEL
from tests.faults.users.workload import PAUSE_S, SETTLE_TIMEOUT_S, TopicPlan, TopicsWorkload, TopicUsers
from tests.support.history import Outcome, Polled, Violation, check

PARTITIONS = 4
RECORDS_PER_S = 300.0
"""Average rate of each topic."""
DELIVERY_TIMEOUT_S = 90.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
STRATEGIES = ("range", "cooperative-sticky")
READER_LIFE_S = (2.0, 15.0)
POLL_S = 0.1
REPLICATED = TopicPlan(label="kafka2", replicas=2, durability="replicated")
STORED = TopicPlan(label="kafka-stored2", replicas=2, durability="stored")
SINGLE = TopicPlan(label="kafka1", replicas=1, durability="stored")
PLANS = (REPLICATED, STORED, SINGLE)


class KafkaTopicUsers(TopicUsers):
    """A topic with a publisher and a reader, each in a thread. Until these end, other threads read only counts."""

    def __init__(self, bootstrap: str, name: str, plan: TopicPlan, seed: str, records_per_s: float) -> None:
        super().__init__(name, plan, seed, records_per_s)
        self.full_name = f"kafka/{name}"
        self.stopped = threading.Event()
        """Set when no more records are sent."""
        self.abandoned = threading.Event()
        """Set when all threads end at once."""
        self._bootstrap = bootstrap
        self._codec = self._rng.choice(CODECS)

    # --- publishing ---------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Send until stopped, then wait until every record has its outcome."""
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": 7,
                "debug": "eos",
                "logger": self._logger(),
                "client.id": f"publisher of {self.name}",
                "enable.idempotence": True,
                "compression.type": self._codec,
                "message.timeout.ms": int(DELIVERY_TIMEOUT_S * 1_000),
                "error_cb": self._on_error,
            }
        )
        number = 0
        while not self.stopped.is_set():
            for _ in range(self._rng.randint(1, self._burst_max)):
                self._send(producer, number)
                number += 1
            self._serve(producer, time.monotonic() + self._rng.uniform(0, 2 * PAUSE_S))
        end_s = time.monotonic() + SETTLE_TIMEOUT_S
        while self._open and time.monotonic() < end_s and not self.abandoned.is_set():
            producer.poll(POLL_S)
        if self._open:
            self.errors.append(f"{self._open} records of {self.name} have no outcome after {SETTLE_TIMEOUT_S:g} s")

    def _send(self, producer: Producer, number: int) -> None:
        key, value = self._record(number)
        now = time.monotonic()
        self._open += 1
        self.waits.on_send(key, now)
        producer.produce(self.name, value, key, on_delivery=partial(self._on_outcome, number, key, value, now))

    def _serve(self, producer: Producer, end_s: float) -> None:
        """Handle outcomes for some time, each as soon as it is known."""
        while (left_s := end_s - time.monotonic()) > 0:
            producer.poll(left_s)

    def _on_outcome(
        self, number: int, key: bytes, value: bytes, at: float, error: KafkaError | None, message: Message
    ) -> None:
        self._open -= 1
        self.waits.on_outcome(key, at, time.monotonic())
        if error is None:
            place = {"segment": message.partition(), "offset": message.offset()}
            self._note_sent(number, Outcome.ACKED, key=key, value=value, **place)
        else:
            self.errors.append(f"record {number} of {self.name}: {error}")
            self._note_sent(number, Outcome.UNKNOWN, key=key, value=value)

    def _logger(self) -> logging.Logger:
        """Return a logger that notes a new epoch: the publisher would store unacknowledged records twice."""
        logger = logging.Logger(self.name)
        logger.addFilter(self._note_epoch)
        return logger

    def _note_epoch(self, record: logging.LogRecord) -> bool:
        if "epoch bump" in record.getMessage():
            self.errors.append(record.getMessage())
        return False

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"a client of {self.name}: {error}")

    # --- reading ------------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Read from the earliest record on until stopped; restart under another name at times."""
        while not self.stopped.is_set():
            end_s = time.monotonic() + self._rng.uniform(*READER_LIFE_S)
            self._read(lambda _: self.stopped.is_set() or time.monotonic() > end_s)  # noqa: B023 - called at once

    def read_all(self) -> str:
        end_s = time.monotonic() + SETTLE_TIMEOUT_S
        return self._read(lambda at_end: at_end == PARTITIONS or time.monotonic() > end_s or self.abandoned.is_set())

    def _read(self, is_over: Callable[[int], bool]) -> str:
        """Read; ``is_over`` gets the number of partitions in which the reader is at the end."""
        reader = self._new_reader()
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "log_level": LOG_LEVEL,
                "client.id": reader,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "error_cb": self._on_error,
            }
        )
        consumer.assign([TopicPartition(self.name, number, OFFSET_BEGINNING) for number in range(PARTITIONS)])
        ended: set[int] = set()
        while not is_over(len(ended)):
            for message in consumer.consume(500, POLL_S):
                error, partition = message.error(), message.partition()
                if error is None:
                    ended.discard(partition)
                    self.history.polled.append(_polled(reader, message))
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - its public name
                    ended.add(partition)
                elif not error.retriable():
                    self.errors.append(f"{reader}: {error}")
        consumer.close()
        return reader

    async def read_natively(self, client: aio.Client) -> str:
        reader = f"{self.name} native reader"
        async with (
            asyncio.timeout(SETTLE_TIMEOUT_S),
            client.subscriber(self.full_name, start="earliest", stop_at="latest") as subscriber,
        ):
            async for message in subscriber:
                number = message.partition
                assert number is not None
                self.history.polled.append(
                    Polled(
                        reader=reader,
                        segment=number,
                        partition=number,
                        offset=message.offset,
                        key=message.key or b"",
                        value=message.value,
                    )
                )
        return reader


def _polled(reader: str, message: Message) -> Polled:
    return Polled(
        reader=reader,
        segment=message.partition(),
        partition=message.partition(),
        offset=message.offset(),
        key=message.key() or b"",
        value=message.value() or b"",
    )


class KafkaWorkload(TopicsWorkload[KafkaTopicUsers, KafkaGroup]):
    """Users of several topics, as an async context manager that creates the topics and starts the users."""

    def __init__(
        self,
        bootstrap: str,
        kafka: str,
        plans: Sequence[TopicPlan],
        *,
        seed: str,
        directory: Path,
        records_per_s: float = RECORDS_PER_S,
        members: int = 0,
    ) -> None:
        """Create the users. ``members``: of a consumer group on all the topics; they write delivered records to
        ``directory``."""
        self._bootstrap = bootstrap
        self.topics = [
            KafkaTopicUsers(kafka, f"faults-{seed}-{plan.label}", plan, seed, records_per_s) for plan in plans
        ]
        self.group = KafkaGroup(
            bootstrap=kafka,
            directory=directory,
            name=f"kafka-faults-{seed}",
            topics=[topic.name for topic in self.topics],
            partitions=PARTITIONS,
            strategy=random.Random(f"{seed} strategy").choice(STRATEGIES),
        )
        self.generations = 0
        """Number of the group's generations since ``forget_waits``, after the initial one."""
        self._members = members
        self._since_ns = 0
        self._threads = ThreadPoolExecutor(2 * len(plans) + 2, thread_name_prefix="kafka users")
        self._publishing: list[asyncio.Future[None]] = []
        self._following: list[asyncio.Future[None]] = []
        self._watching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "KafkaWorkload":
        await self._create_topics(self._bootstrap, partitions=PARTITIONS)
        loop = asyncio.get_running_loop()
        self._publishing = [loop.run_in_executor(self._threads, topic.publish) for topic in self.topics]
        self._following = [loop.run_in_executor(self._threads, topic.follow) for topic in self.topics]
        try:
            await self.group.__aenter__()
            if self._members:
                await self.group.add(self._members)
                self._watching = asyncio.create_task(self.group.watch(self._threads), name=f"watch {self.group.name}")
                await self.group.until_shared(SETTLE_TIMEOUT_S)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        for topic in self.topics:
            topic.stopped.set()
            topic.abandoned.set()
        await self._stop_watching()
        await self.group.__aexit__()
        await asyncio.gather(*self._publishing, *self._following, return_exceptions=True)
        await asyncio.to_thread(self._threads.shutdown)
        async with asyncio.timeout(5):
            await self._client.close()

    async def _stop_watching(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def _running(self) -> Sequence["asyncio.Future[None]"]:
        return [*self._publishing, *self._following]

    def forget_waits(self) -> None:
        super().forget_waits()
        self._since_ns = time.monotonic_ns()

    @property
    def commit_wait_s(self) -> float:
        return self.group.commit_wait_s(self._since_ns)

    async def finish(self) -> list[Violation]:
        """End publishing, read everything once more, and judge."""
        loop = asyncio.get_running_loop()
        for topic in self.topics:
            topic.stopped.set()
        await asyncio.gather(*self._publishing, *self._following)
        violations = []
        readers = await asyncio.gather(*(loop.run_in_executor(self._threads, topic.read_all) for topic in self.topics))
        natives = await asyncio.gather(*(topic.read_natively(self._client) for topic in self.topics))
        for topic, reader, native in zip(self.topics, readers, natives, strict=True):
            violations += await asyncio.to_thread(check, topic.history, complete=[reader, native])
            violations += [Violation("error", error) for error in topic.errors]
        if self._members:
            violations += await self._finish_group()
        return violations

    async def _finish_group(self) -> list[Violation]:
        sent = await self._until_delivered()
        self.generations = len(self.group.generations(self._since_ns, time.monotonic_ns())) - 1
        violations = await self.group.stop()
        await self._stop_watching()
        violations += await asyncio.to_thread(self.group.check, sent)
        return violations
