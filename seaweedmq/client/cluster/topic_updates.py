"""What brokers tell of topics as soon as it changes: one call at a time, for all topics that somebody waits for.

When a broker dies, every segment it served waits for its successor. Asked for one by one, again and again, these took
a client of 450 topics two fifths of its CPU, and the brokers as much as they needed for the successors.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.description import IDS_MAX, TopicDescription
from seaweedmq.model.messages.calls import AWAITED_AT_ONCE_MAX, AwaitedTopic, AwaitTopics, UpdatedTopics
from seaweedmq.runtime.retrying import backoff, retrying

GATHER_S = 0.02
"""Least time between two calls: more topics may be wanted, and more may have changed, at the same time."""
TOPICS_PER_S = 5_000
"""Most topics that calls name in a second. Each call names all of them: while thousands change one after another, calls
at every change would cost the square of their number."""
PATIENCE_S = 1.0
"""How long a broker waits for a change. A frozen one is noticed that much later."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.05, 1.0
"""After a broker that does not answer, before the next one is asked: a random time up to a bound that doubles."""


def pause_s(topics: int) -> float:
    """Return the pause before a call that names so many topics."""
    return max(GATHER_S, topics / TOPICS_PER_S)


class UpdateSubscriber(Protocol):
    """What somebody knows of a topic."""

    def awaited(self) -> AwaitedTopic:
        """What is known now."""

    def know(self, told: TopicDescription) -> bool:
        """Take in what a broker told, if it is newer."""

    def confirm(self) -> None:
        """A broker knows nothing newer."""


class TopicUpdates:
    """The topics that somebody waits for; a task asks for news of them while there are any."""

    def __init__(self, ask: Callable[[AwaitTopics], Awaitable[UpdatedTopics]], rng: random.Random) -> None:
        """``ask`` makes the call at one broker."""
        self._ask = ask
        self._rng = rng
        self._wanted: dict[UpdateSubscriber, float] = {}
        """Until when, by the loop's clock; the one that was not asked for the longest first."""
        self._more = asyncio.Event()
        self._asking: asyncio.Task[None] | None = None

    def want(self, known: UpdateSubscriber, until: float) -> None:
        """Tell it what is new, until the loop's clock says so. What is said anew counts."""
        if known not in self._wanted:
            self._more.set()
        self._wanted[known] = until
        self._begin()

    def forget(self, known: UpdateSubscriber) -> None:
        """Tell it nothing any more."""
        self._wanted.pop(known, None)
        if not self._wanted and self._asking is not None:
            self._asking.cancel()

    async def close(self) -> None:
        """Ask no more."""
        self._wanted.clear()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    def _begin(self) -> None:
        if self._asking is None:
            self._asking = asyncio.create_task(self._run(), name="news of topics")
            self._asking.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._asking = None
        if not task.cancelled():
            task.result()
        if self._wanted:  # since it was told to end
            self._begin()

    async def _run(self) -> None:
        # Whatever a broker refuses is told to those who ask for a topic by itself, as all do when nothing is told.
        asking = retrying(backoff(self._rng, PAUSE_S_MIN, PAUSE_S_MAX), on=SeaweedMQError)
        while self._still_wanted():
            await asyncio.sleep(pause_s(len(self._wanted)))
            await asking(self._ask_once)

    def _still_wanted(self) -> bool:
        now = asyncio.get_running_loop().time()
        self._wanted = {known: until for known, until in self._wanted.items() if until > now}
        return bool(self._wanted)

    async def _ask_once(self) -> None:
        """One call. Given up when more topics are wanted: the next one asks for these, too."""
        if not self._still_wanted():
            return
        self._more.clear()
        chosen = self._next()
        call = asyncio.ensure_future(self._ask(AwaitTopics(tuple(chosen.values()), PATIENCE_S)))
        more = asyncio.create_task(self._more.wait(), name="more topics are wanted")
        try:
            await asyncio.wait({call, more}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (call, more):
                task.cancel()
            await asyncio.wait({call, more})
        if call.cancelled():
            return
        told = call.result()
        changed = {description.topic.uid: description for description in told.changed}
        for known, awaited in chosen.items():
            if awaited.topic_uid in changed:
                known.know(changed[awaited.topic_uid])
            elif awaited.topic_uid not in told.unknown:
                known.confirm()

    def _next(self) -> dict[UpdateSubscriber, AwaitedTopic]:
        """As many as one call takes; the next call begins with the others."""
        chosen: dict[UpdateSubscriber, AwaitedTopic] = {}
        ids = 0
        for known, until in list(self._wanted.items()):
            awaited = known.awaited()
            ids += len(awaited.ids)
            if chosen and (len(chosen) == AWAITED_AT_ONCE_MAX or ids > IDS_MAX):
                break
            chosen[known] = awaited
            del self._wanted[known]
            self._wanted[known] = until
        return chosen
