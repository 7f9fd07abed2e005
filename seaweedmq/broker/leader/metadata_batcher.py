"""Group commit of metadata: while one transaction is under way, changes of topics gather for the next one.

Each change is planned when its transaction is assembled, on its topic as the changes before it leave it. So the death
of a broker costs a few transactions, however many segments it had. Databases introduced the idea and the name: many
transactions share one write to their log (DeWitt et al. 1984).
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from seaweedmq.broker.leader.metadata import Metadata, segment_put
from seaweedmq.codec.state import keys
from seaweedmq.codec.state.metadata import topic_to_json
from seaweedmq.coordination.limits import CHANGES_PER_TRANSACTION, TRANSACTION_BYTES_MAX
from seaweedmq.core.lineage.topology import MetadataChange
from seaweedmq.errors import Conflict, InvalidArgument, SeaweedMQError, fresh
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import Compare, Put

Plan: TypeAlias = Callable[[Topic], MetadataChange | None]
"""A change of a topic, or None if it is no longer due.

Raises SeaweedMQError if it is impossible. May run repeatedly.
"""


@dataclass(slots=True, eq=False)
class _Waiting:
    """A change and the future of its caller."""

    name: TopicName
    predecessors: Sequence[Segment]
    plan: Plan
    done: "asyncio.Future[None]"


@dataclass(slots=True)
class _TopicChanges:
    """One topic's part of a transaction."""

    topic: Topic
    waiting: list[_Waiting] = field(default_factory=list)
    compares: list[Compare] = field(default_factory=list)
    """Compares that hold while the topic and the predecessors are as they were when planned."""
    puts: list[Put] = field(default_factory=list)
    """Writes of segments."""

    def add(
        self, waiting: _Waiting, change: MetadataChange, puts: Iterable[Put], unchanged: Callable[[Segment], Compare]
    ) -> None:
        """Add one more change of the topic."""
        self.topic = change.topic
        self.waiting.append(waiting)
        self.compares += map(unchanged, waiting.predecessors)
        self.puts += puts


class MetadataBatcher:
    """The batched writer of topic changes: many share one transaction."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._waiting: dict[TopicName, deque[_Waiting]] = {}
        self._writing = asyncio.Lock()
        self._keys_max = CHANGES_PER_TRANSACTION
        """Most keys of one transaction; lowered if this etcd is configured to take fewer."""

    async def write(self, name: TopicName, predecessors: Sequence[Segment], plan: Plan) -> None:
        """Carry a plan out while its predecessors are as the view has them; on return the view has the change.

        The caller that holds the lock writes for all waiting callers. If it is cancelled, the next one continues.
        Raises as ``Metadata.write``; Conflict also for a changed predecessor.
        """
        waiting = _Waiting(name, predecessors, plan, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(name, deque()).append(waiting)
        try:
            await asyncio.sleep(0)  # changes of the same loop iteration share a transaction
            async with self._writing:
                while not waiting.done.done():
                    await self._write_some()
        except BaseException:
            waiting.done.cancel()  # a cancelled caller is skipped
            raise
        waiting.done.result()

    async def _write_some(self) -> None:
        shares = self._gather()
        if not shares:
            return
        try:
            await self._commit(shares)
        except BaseException:
            self._put_back(shares)
            raise

    def _gather(self) -> list[_TopicChanges]:
        """Return the changes that fit into one transaction, at least one, in order of arrival.

        They are grouped by topic: a topic is written once, however many of its segments change.
        """
        shares: list[_TopicChanges] = []
        keys_taken = bytes_taken = 0
        for name, waiting in list(self._waiting.items()):
            share: _TopicChanges | None = None
            while waiting:
                change = None if waiting[0].done.done() else self._planned(waiting[0], share)
                if change is None:
                    waiting.popleft()
                    continue
                puts = [segment_put(segment) for segment in change.segments]
                keys_taken += len(puts) + (share is None)
                bytes_taken += sum(len(put.key) + len(put.value) for put in puts)
                if shares and (keys_taken > self._keys_max or bytes_taken > TRANSACTION_BYTES_MAX // 2):
                    return shares  # planned again for the next one, which costs a load estimate
                if share is None:
                    revision = self._metadata.view.topic_revision(name)
                    share = _TopicChanges(change.topic, compares=[Compare(keys.topic_key(name), mod_revision=revision)])
                    shares.append(share)
                share.add(waiting.popleft(), change, puts, self._metadata.unchanged)
            del self._waiting[name]
        return shares

    def _planned(self, waiting: _Waiting, share: _TopicChanges | None) -> MetadataChange | None:
        """Return the planned change; None if the caller already has its result."""
        try:
            change = waiting.plan(share.topic if share else self._metadata.topic(waiting.name))
        except SeaweedMQError as error:
            waiting.done.set_exception(error)
            return None
        if change is None:
            waiting.done.set_result(None)
        return change

    async def _commit(self, shares: list[_TopicChanges]) -> None:
        """Write all shares; if a compare fails, each topic by itself."""
        try:
            if await self._transact(shares):
                _finish(shares, None)
            elif len(shares) == 1:
                _finish(shares, Conflict(f"{shares[0].topic.name} changed concurrently: retry"))
            else:
                for share in shares:
                    await self._commit([share])
        except InvalidArgument as error:
            if sum(len(share.waiting) for share in shares) == 1:
                _finish(shares, error)
                return
            keys_tried = sum(len(share.puts) + 1 for share in shares)
            self._keys_max = max(1, min(self._keys_max, keys_tried) // 2)  # this etcd takes fewer keys than the default
            self._put_back(shares)
        except SeaweedMQError as error:
            _finish(shares, error)

    async def _transact(self, shares: Sequence[_TopicChanges]) -> bool:
        """Return whether the transaction was done, and wait for the view; False if a compare failed."""
        compares = [compare for share in shares for compare in share.compares]
        topics = [Put(keys.topic_key(share.topic.name), topic_to_json(share.topic)) for share in shares]
        revision = await self._metadata.transact(compares, [*topics, *(put for share in shares for put in share.puts)])
        if revision is not None:
            await self._metadata.view.wait_revision(revision)
        return revision is not None

    def _put_back(self, shares: Sequence[_TopicChanges]) -> None:
        """Put unfinished changes back to the front of their queues; one that was done conflicts when planned."""
        for share in shares:
            undone = [waiting for waiting in share.waiting if not waiting.done.done()]
            if undone:
                self._waiting.setdefault(share.topic.name, deque()).extendleft(reversed(undone))


def _finish(shares: Sequence[_TopicChanges], error: SeaweedMQError | None) -> None:
    for waiting in [waiting for share in shares for waiting in share.waiting if not waiting.done.done()]:
        if error is None:
            waiting.done.set_result(None)
        else:
            waiting.done.set_exception(fresh(error))
