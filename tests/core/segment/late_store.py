"""An object store in memory, behind a network that answers late, twice or never."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from seaweedmq.model.bundle import EntryIndex
from seaweedmq.model.segment import ReplicaKey


class Lost:
    """The answer that a sender assumes when none arrives."""


LOST = Lost()


@dataclass(eq=False)
class Request:
    """A request on its way, or its answer on the way back."""

    apply: Callable[[], Any]
    answer: Callable[[Any], None] | None
    """Receiver of the answer; None once the sender has given up."""
    is_write: bool
    """Whether it may still be applied after its sender has given up, or be applied twice."""
    by_writer: bool = False
    is_slow: bool = False
    result: Any = None
    is_applied: bool = False


@dataclass
class Store:
    """The entries of one broker, and the log objects of its segments."""

    rng: random.Random
    conditional: bool = True
    entries: dict[int, EntryIndex] = field(default_factory=dict)
    logs: set[tuple[ReplicaKey, int, int]] = field(default_factory=set)
    requests: list[Request] = field(default_factory=list)

    def send(
        self,
        apply: Callable[[], Any],
        answer: Callable[[Any], None] | None,
        *,
        is_write: bool = False,
        by_writer: bool = False,
        is_slow: bool = False,
    ) -> None:
        self.requests.append(Request(apply, answer, is_write, by_writer, is_slow))

    def put(self, entry: EntryIndex) -> bool:
        if self.conditional and entry.header.number in self.entries:
            return False
        self.entries[entry.header.number] = entry
        return True

    def move(self, *, is_calm: bool = False) -> None:
        """Move one request: apply it, answer it, lose it, or repeat it."""
        request = self.requests[0 if is_calm else self.rng.randrange(len(self.requests))]
        if request.is_slow and not is_calm and self.rng.random() < 0.7:
            return
        fate = 1.0 if is_calm else self.rng.random()
        if fate < 0.08 and request.answer is not None:
            answer, request.answer = request.answer, None
            if request.is_applied or not request.is_write or fate < 0.02:
                self.requests.remove(request)
            answer(LOST)
        elif not request.is_applied:
            if request.is_write and fate < 0.2:
                self.requests.append(Request(request.apply, None, is_write=True))
            request.result, request.is_applied = request.apply(), True
            if request.answer is None:
                self.requests.remove(request)
        else:
            self.requests.remove(request)
            if request.answer is not None:
                request.answer(request.result)
