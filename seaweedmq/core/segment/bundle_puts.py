"""Completion of a writer's bundles: what an answer of the object store proves, and what may be acknowledged.

Several bundles are put at a time, each with create-if-absent. A bundle is done if its own bytes are at its number. An
answer alone is not always proof: a reply may be lost, a store repeats a request, and a second, equal PUT of the same
writer meets the first. So if the name is taken, the writer reads the first bytes of what is there and compares its
nonce. A bundle is acknowledged only when all lower numbers are done as well: a fence may still take one of those.

A PUT that takes much longer than most is sent a second time. Of two equal ones the first to arrive counts.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from seaweedmq.model.bundle import EntryHeader

SECOND_PUT_S_MIN: Final = 0.3
"""Shortest time until the second PUT, in seconds."""
SECOND_PUT_FACTOR: Final = 3
"""Multiple of the 95th percentile of the last PUTs until the second one."""
LATENCIES_MAX: Final = 100


class PutAnswer(StrEnum):
    """The answer of the object store to a create-if-absent."""

    CREATED = "created"
    EXISTS = "exists"
    """The name is taken, perhaps by this very bundle."""
    CONFLICT = "conflict"
    """Another request for the name was running (409): nothing is known."""
    NO_ANSWER = "no answer"
    """Deadline, reset, or an error of the server: it may still be applied, at any later time."""


@dataclass(frozen=True, slots=True)
class Put:
    """An action: put the bundle, with create-if-absent and the same bytes each time."""

    number: int


@dataclass(frozen=True, slots=True)
class ReadHeader:
    """An action: read the first 128 bytes at this number, then call ``BundlePuts.header_read``."""

    number: int


@dataclass(frozen=True, slots=True)
class RaiseDone:
    """An action: all bundles below ``number`` are done; raise ``flushed`` of their segments and acknowledge."""

    number: int


@dataclass(frozen=True, slots=True)
class EndSequence:
    """An action: another process ended the sequence at ``number``; acknowledge nothing, drop all segments, rejoin."""

    number: int


PutAction: TypeAlias = Put | ReadHeader | RaiseDone | EndSequence


@dataclass(slots=True)
class _Attempt:
    nonce: bytes
    begun_s: float
    is_doubled: bool = False
    is_done: bool = False


class BundlePuts:
    """The bundles of one writer that are being put. Times are seconds of one clock that never steps back."""

    def __init__(self, *, next_number: int = 1) -> None:
        self.done_below = next_number
        """Number below which all bundles are done; never rises after the sequence ended."""
        self.ended_at: int | None = None
        """Number at which another process ended the sequence; None while it continues."""
        self._attempts: dict[int, _Attempt] = {}
        self._next_number = next_number
        self._latencies_s: deque[float] = deque(maxlen=LATENCIES_MAX)

    def begin(self, number: int, nonce: bytes, now: float) -> Sequence[PutAction]:
        """Put the next bundle of the sequence; its header has this nonce."""
        assert number == self._next_number, f"bundle {number} instead of {self._next_number}"
        if self.ended_at is not None:
            return ()
        self._next_number += 1
        self._attempts[number] = _Attempt(nonce, now)
        return (Put(number),)

    def answered(self, number: int, answer: PutAnswer, now: float) -> Sequence[PutAction]:
        """Record an answer to one of the PUTs of a bundle."""
        attempt = self._waiting(number)
        if attempt is None:
            return ()
        match answer:
            case PutAnswer.CREATED:
                self._latencies_s.append(now - attempt.begun_s)
                return self._done(attempt)
            case PutAnswer.EXISTS:
                return (ReadHeader(number),)
        return (Put(number),)

    def header_read(self, number: int, header: EntryHeader | None) -> Sequence[PutAction]:
        """Record which entry is at a number; None if none is."""
        attempt = self._waiting(number)
        if attempt is None:
            return ()
        if header is None:
            return (Put(number),)  # the answer was to a request that failed in the end
        if header.nonce == attempt.nonce:
            return self._done(attempt)
        self.ended_at = number
        return (EndSequence(number),)

    def second_put_s(self) -> float | None:
        """Return the time from which on :meth:`second_puts` returns actions; None until another event."""
        waiting = [a.begun_s for a in self._attempts.values() if not (a.is_done or a.is_doubled)]
        return min(waiting) + self._patience_s if waiting and self.ended_at is None else None

    def second_puts(self, now: float) -> Sequence[PutAction]:
        """Return a second PUT for each bundle that waits for too long, once."""
        if self.ended_at is not None:
            return ()
        late = [
            number
            for number, attempt in self._attempts.items()
            if not (attempt.is_done or attempt.is_doubled) and now >= attempt.begun_s + self._patience_s
        ]
        for number in late:
            self._attempts[number].is_doubled = True
        return [Put(number) for number in late]

    @property
    def _patience_s(self) -> float:
        if not self._latencies_s:
            return SECOND_PUT_S_MIN
        ordered = sorted(self._latencies_s)
        return max(SECOND_PUT_S_MIN, SECOND_PUT_FACTOR * ordered[int(0.95 * (len(ordered) - 1))])

    def _waiting(self, number: int) -> _Attempt | None:
        """Return the attempt that an answer is for; None if it no longer matters."""
        attempt = self._attempts.get(number)
        return None if attempt is None or attempt.is_done or self.ended_at is not None else attempt

    def _done(self, attempt: _Attempt) -> Sequence[PutAction]:
        attempt.is_done = True
        before = self.done_below
        while self.done_below in self._attempts and self._attempts[self.done_below].is_done:
            del self._attempts[self.done_below]
            self.done_below += 1
        return (RaiseDone(self.done_below),) if self.done_below > before else ()
