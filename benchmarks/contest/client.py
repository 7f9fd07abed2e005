"""Interface of a system's client: the same for all, each with its own calls."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from benchmarks.contest.feed import Feed, Schedule
from benchmarks.contest.watch import Watch

FLUSH_TIMEOUT_S = 120.0
IDLE_TIMEOUT_S = 15.0
"""Seconds without a record after which a consumer stops, so that its count is wrong."""
LINGER_LATENCY_S = 0.002
"""Linger in seconds of publishers with a schedule."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic or stream; ``partitions`` are segments, partitions, or streams by hash of the key."""

    name: str
    partitions: int = 1
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """Records and bytes that were consumed."""

    records: int
    value_bytes: int


class Client(ABC):
    """One client in one process.

    Args:
        address: Address of the server.
        fsync: As of the server, for systems in which clients choose.
    """

    not_ready: ClassVar[tuple[type[Exception], ...]]
    """Exceptions while the server is starting."""
    call_bytes: ClassVar[Mapping[str, int]] = {}
    """Calls that take many records at once, and the bytes of values that each gets."""

    creates_topics: ClassVar[bool] = True
    """Whether ``create`` has an effect."""

    @abstractmethod
    def __init__(self, address: str, *, fsync: bool) -> None: ...

    @abstractmethod
    def close(self) -> None: ...

    @abstractmethod
    def create(self, topics: Sequence[Topic]) -> None: ...

    @abstractmethod
    def delete(self, topics: Sequence[Topic]) -> None: ...

    @abstractmethod
    def stored(self, topics: Sequence[Topic]) -> int:
        """Return the number of records that the server holds, of all topics together."""

    @abstractmethod
    def publish(self, call: str, topic: Topic, feed: Feed, watch: Watch) -> None:
        """Publish the whole feed; the watch runs from the first call to the last acknowledgement.

        Raises:
            Unacknowledged: If a record was not acknowledged.
        """

    @abstractmethod
    def consume(self, call: str, topic: Topic) -> Tally:
        """Consume everything from the beginning to the current end."""

    @abstractmethod
    def send(self, topics: Sequence[Topic], schedule: Schedule, watch: Watch) -> None:
        """Send each record when it is due, to one topic after another, lingering for ``LINGER_LATENCY_S`` if possible.

        The watch runs from the first record to the last acknowledgement.

        Raises:
            Unacknowledged: If a record was not acknowledged.
        """

    @abstractmethod
    def receive(self, topic: Topic, count: int, ready: Callable[[], None], take: Callable[[bytes], None]) -> None:
        """Pass ``count`` values to ``take`` as they arrive; return early after ``IDLE_TIMEOUT_S`` without one.

        Args:
            topic: An empty topic of one partition.
            ready: Called once, when every record published from now on will be delivered.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
