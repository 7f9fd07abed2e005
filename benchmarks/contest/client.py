"""What a system's client does: the same for all, each with its own calls."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import ClassVar, Self

from benchmarks.contest.feed import Feed, Schedule
from benchmarks.contest.watch import Watch

FLUSH_TIMEOUT_S = 120.0
IDLE_TIMEOUT_S = 15.0
"""A consumer that gets nothing for so long gives up, and the count will not be right."""
LINGER_LATENCY_S = 0.002
"""Of publishers that send by a schedule."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic or stream; ``partitions`` are segments, partitions, or streams by hash of the key."""

    name: str
    partitions: int = 1
    keyed: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What was consumed."""

    records: int
    value_bytes: int


class Client(ABC):
    """One client in one process.

    Args:
        address: of the server.
        fsync: as of the server, for systems in which clients choose.
    """

    not_ready: ClassVar[tuple[type[Exception], ...]]
    """What is raised while the server is starting."""
    call_bytes: ClassVar[Mapping[str, int]] = {}
    """Calls that take many records at once, and how many bytes of values each is given."""

    creates_topics: ClassVar[bool] = True
    """Whether ``create`` has anything to do."""

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
        """Records that the server holds, of all the topics together."""

    @abstractmethod
    def publish(self, call: str, topic: Topic, feed: Feed, watch: Watch) -> None:
        """Publish all of the feed; the watch runs from the first call to the last acknowledgement.

        Raises:
            Unacknowledged: something was not.
        """

    @abstractmethod
    def consume(self, call: str, topic: Topic) -> Tally:
        """Everything from the beginning to what is the end now."""

    @abstractmethod
    def send(self, topics: Sequence[Topic], schedule: Schedule, watch: Watch) -> None:
        """Send each record when it is due, to one topic after the other, lingering for ``LINGER_LATENCY_S`` if it can.
        The watch runs from the first record to the last acknowledgement.

        Raises:
            Unacknowledged: something was not.
        """

    @abstractmethod
    def receive(self, topic: Topic, count: int, ready: Callable[[], None], take: Callable[[bytes], None]) -> None:
        """Hand ``count`` values to ``take`` as they come; return early if nothing comes for ``IDLE_TIMEOUT_S``.

        Args:
            topic: empty, of one partition.
            ready: called once, when whatever is published from now on will be delivered.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
