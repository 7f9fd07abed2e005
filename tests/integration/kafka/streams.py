"""Load during an event at a group or a broker, and its outcome."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, Producer

from tests.integration.kafka.members import Member
from tests.integration.kafka.records import TIMEOUT_S


class Stream:
    """A publisher that runs while the ``with`` block runs: number n goes to partition n modulo their count."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, **settings: object) -> None:
        """``settings``: librdkafka's, with _ for a dot."""
        self.sent = self.kept = 0
        self._topic, self._partitions = topic, partitions
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
            | {"retry.backoff.ms": 20, "reconnect.backoff.max.ms": 500, "topic.metadata.refresh.fast.interval.ms": 50}
            | {name.replace("_", "."): value for name, value in settings.items()}
        )
        self._refused: list[KafkaError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._publish)

    def __enter__(self) -> "Stream":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(TIMEOUT_S)
        assert self._producer.flush(TIMEOUT_S) == 0
        assert not self._refused, self._refused

    def _heard(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._refused.append(error)
        else:
            self.kept += 1

    def _publish(self) -> None:
        while not self._stop.wait(0.005):
            partition = self.sent % self._partitions
            self._producer.produce(self._topic, b"%d" % self.sent, partition=partition, on_delivery=self._heard)
            self._producer.poll(0)
            self.sent += 1


def numbers(members: list[Member]) -> list[int]:
    """Return the values that the members got, sorted."""
    return sorted(int(got.value or b"") for member in members for got in member.got)


@contextmanager
def leaving(members: list[Member]) -> Iterator[None]:
    """Let the members leave at the end of the block, also after an error."""
    try:
        yield
    finally:
        failures = []
        for member in members:
            try:
                member.leave()
            except BaseException as error:  # noqa: BLE001 - the others have to leave also
                failures.append(error)
        if failures:
            raise failures[0]
