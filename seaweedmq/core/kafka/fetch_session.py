"""Fetch sessions (KIP-227): a consumer names its partitions once, then only changes, and receives only changes.

A session is a list of partitions that both sides know. Its epoch counts requests and shows whether both know the same.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

SESSIONS_MAX = 1_000
"""Sessions of one broker. Beyond it the least recently used one is closed, if unused for ``UNUSED_S``."""
UNUSED_S = 120.0
"""Shortest unused time of a closed session, in seconds, as Kafka's ``min.incremental.fetch.session.eviction.ms``.
Without one to close, a consumer fetches without a session."""
PARTITIONS_MAX = 200_000
"""Partitions of all sessions of a broker, 400 bytes each; a consumer that requests more gets no session."""
FINAL_EPOCH = -1
FIRST_EPOCH = 0
EPOCH_MAX = 2**31 - 1
NO_SESSION = 0

PartitionKey: TypeAlias = tuple[str | bytes, int]
"""Topic, by name or id as the consumer names it, and partition."""


class RequestedPartition(NamedTuple):
    """A consumer's request for one partition."""

    offset: int
    bytes_max: int
    leader_epoch: int
    """Leader epoch that the consumer knows; -1: unknown."""


class SentPartition(NamedTuple):
    """The last sent state of one partition, besides records."""

    high_watermark: int
    log_start: int


class SessionProblem(Enum):
    """The reason why a whole request is rejected, after which the consumer begins a new session."""

    UNKNOWN = "there is no such fetch session: begin a new one"
    EPOCH = "the request is not the next one of the fetch session: begin a new one"
    NAMING = "the fetch session and the request differ in naming topics by ids or names: begin a new one"


class SessionRejected(Exception):
    """A request that does not match its session, see ``problem``."""

    def __init__(self, problem: SessionProblem) -> None:
        super().__init__(problem.value)
        self.problem = problem


@dataclass(slots=True)
class _Session:
    id: int
    next_epoch: int
    used_at: float
    by_id: bool
    """Whether its requests name topics by ids."""
    partitions: "OrderedDict[PartitionKey, RequestedPartition]"
    """Partitions in the order of service: one whose records were sent moves to the end."""
    sent: dict[PartitionKey, SentPartition]


class Exchange:
    """One request and its reply."""

    def __init__(
        self, partitions: Mapping[PartitionKey, RequestedPartition], session: _Session | None, *, is_full: bool
    ) -> None:
        self.partitions = partitions
        """All requested partitions, in the order of service."""
        self._session = session
        self._is_full = is_full

    @property
    def session_id(self) -> int:
        """The session id of the reply."""
        return NO_SESSION if self._session is None else self._session.id

    def settle(self, key: PartitionKey, sent: SentPartition, *, has_records: bool, has_error: bool) -> bool:
        """Return whether the reply must include the partition, whose state then counts as sent."""
        session = self._session
        if session is None:
            return True
        changed = session.sent.get(key) != sent
        if has_records:
            session.partitions.move_to_end(key)
        if has_error:
            session.sent.pop(key, None)  # sent again next time
        else:
            session.sent[key] = sent
        return self._is_full or has_records or has_error or changed


class FetchSessions:
    """The sessions of one broker; ``new_id`` returns random positive numbers of 31 bits."""

    def __init__(
        self, new_id: Callable[[], int], limit: int = SESSIONS_MAX, partitions_max: int = PARTITIONS_MAX
    ) -> None:
        self._new_id = new_id
        self._limit = limit
        self._partitions_left = partitions_max
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        """Sessions by id, the least recently used first."""

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(
        self,
        session_id: int,
        epoch: int,
        wanted: Mapping[PartitionKey, RequestedPartition],
        forgotten: Iterable[PartitionKey],
        now: float,
        *,
        by_id: bool = False,
    ) -> Exchange:
        """Resolve a request to all requested partitions, also those of its session (0: none).

        Epoch 0 opens a session, -1 closes it. The caller must not change ``wanted`` afterwards. ``by_id``: the request
        names topics by their ids. Raises SessionRejected if the session does not exist, expects another epoch, or names
        topics in the other way.
        """
        if epoch in (FINAL_EPOCH, FIRST_EPOCH):
            self._close(session_id)
            session = self._open(wanted, now, by_id) if epoch == FIRST_EPOCH else None
            return Exchange(wanted, session, is_full=True)
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionRejected(SessionProblem.UNKNOWN)
        if epoch != session.next_epoch:
            raise SessionRejected(SessionProblem.EPOCH)
        if by_id != session.by_id:
            raise SessionRejected(SessionProblem.NAMING)
        session.next_epoch = epoch_after(epoch)
        session.used_at = now
        self._sessions.move_to_end(session_id)
        before = len(session.partitions)
        for key in forgotten:
            session.partitions.pop(key, None)
            session.sent.pop(key, None)
        session.partitions.update(wanted)
        self._partitions_left -= len(session.partitions) - before
        if self._partitions_left < 0:
            self._close(session_id)
            raise SessionRejected(SessionProblem.UNKNOWN)
        return Exchange(OrderedDict(session.partitions), session, is_full=False)

    def _open(self, wanted: Mapping[PartitionKey, RequestedPartition], now: float, by_id: bool) -> _Session | None:
        if len(self._sessions) >= self._limit:
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < UNUSED_S:
                return None
            self._close(oldest.id)
        if len(wanted) > self._partitions_left:
            return None
        number = self._new_id()
        while number == NO_SESSION or number in self._sessions:
            number = self._new_id()
        session = _Session(number, FIRST_EPOCH + 1, now, by_id, OrderedDict(wanted), {})
        self._sessions[number] = session
        self._partitions_left -= len(wanted)
        return session

    def _close(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions_left += len(session.partitions)


def epoch_after(epoch: int) -> int:
    """Return the epoch of the next request."""
    return FIRST_EPOCH + 1 if epoch == EPOCH_MAX else epoch + 1
