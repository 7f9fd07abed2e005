"""A cached description of one topic, refreshed on demand and by updates."""

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.description import ALL, OPEN, AwaitedTopic, SegmentSelection, TopicDescription
from seaweedmq.model.topic import TopicName, topic_recreated
from seaweedmq.runtime.retrying import is_retryable
from seaweedmq.runtime.signal import Signal

WANTED_S = 1.0
"""Time for which updates of a topic continue after the last wait, since the next wait may follow at once."""


class TopicView:
    """The cached description of a topic: its open segments as of the last query, and the segments asked for.

    Concurrent refreshes share one query.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: TopicName,
        on_change: Callable[[TopicDescription], None],
        ask: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """Make an empty view; ``ask`` returns the segments that every query includes besides the open ones.

        ``on_change`` is called with every description that is taken in.
        """
        self._cluster = cluster
        self.name = name
        self._on_change = on_change
        self._ask = ask
        self._description: TopicDescription | None = None
        self._ids: frozenset[int] = frozenset()
        """The ids of the segments in the description."""
        self._queries: dict[asyncio.Task[TopicDescription], frozenset[int]] = {}
        """Query in flight -> ids of the segments that it includes."""
        self._refreshing: asyncio.Task[None] | None = None
        self._updated = Signal()
        """A signal that fires with every description that is taken in."""
        self.current_s = -math.inf
        """Loop time at which a broker last confirmed that the description is current."""

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription:
        """Return the cached description, or query a broker if ``refresh`` is set or one of ``ids`` is unknown.

        An id that is missing in the result was pruned if it is below ``topic.next_segment``, else it is not known yet.
        NotFound is raised if the topic does not exist, or was recreated; Unavailable if no broker's view is as new as
        the cached one.
        """
        wanted = frozenset(ids)
        if not refresh and self._description is not None and wanted <= self._ids:
            return self._description
        query = next((task for task, asked in self._queries.items() if wanted <= asked), None)
        if query is None:
            asked = wanted.union(self._ask())
            query = asyncio.create_task(self._query(replace(OPEN, ids=tuple(sorted(asked)))))
            self._queries[query] = asked
            query.add_done_callback(self._query_done)
        return await asyncio.shield(query)

    async def ends(self, segment: int, within_s: float) -> bool:
        """Wait up to ``within_s`` for an open segment to end, with updates from brokers. Return whether it ended."""
        is_open = self.is_open(segment)
        self.want(within_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.is_open(segment) == is_open:
                    await self._updated.wait()
        return is_open and not self.is_open(segment)

    def want(self, within_s: float) -> None:
        """Receive updates for ``within_s`` seconds; ``on_change`` gets them."""
        self._cluster.updates.want(self, asyncio.get_running_loop().time() + within_s + WANTED_S)

    def refresh_periodically(self, pause_s: float) -> None:
        """Query the topic every ``pause_s`` seconds until closed or deleted; ``on_change`` gets the changes."""
        if self._refreshing is None:
            self._refreshing = asyncio.create_task(self._refresh_in_loop(pause_s), name=f"refresh of {self.name}")

    async def _refresh_in_loop(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.description(True)
            except SeaweedMQError as error:
                if not is_retryable(error):
                    return  # The next send or read raises it.

    def is_open(self, number: int) -> bool:
        """Whether the description has the segment as open. Requires a description."""
        assert self._description is not None, "a segment id is known only from a description"
        segment = self._description.segment(number)
        return segment is not None and segment.is_open

    def awaited(self) -> AwaitedTopic:
        """Return the state of the view, for a broker to compare. Requires a description."""
        assert self._description is not None, "as above"
        topic = self._description.topic
        ids = tuple(sorted(self._ask()))
        return AwaitedTopic(name=self.name, topic_uid=topic.uid, above=self._description.revision, ids=ids)

    async def whole(self) -> TopicDescription:
        """Query the topic with all its segments."""
        return await self._query(ALL)

    async def _query(self, which: SegmentSelection) -> TopicDescription:
        uid = self._description.topic.uid if self._description is not None else 0
        description = await self._cluster.describe(self.name, which, self._cluster.config.rpc_timeout_s, uid)
        if self.update(description) or self._description is None:
            return description
        unknown = set(which.ids) - self._ids
        if unknown:
            raise Unavailable(f"segment {min(unknown)} of {self.name} is not known yet to the queried broker: retry")
        return self._description

    def update(self, description: TopicDescription) -> bool:
        """Take in a description unless it is older: ids and revisions never fall. Return whether it was taken in.

        A publisher with an older one would renumber a segment's records, or send without the schema. NotFound is raised
        if it describes a recreated topic, which is not the one that was opened.
        """
        known, topic = self._description, description.topic
        if known is not None and known.topic.uid != topic.uid:
            raise topic_recreated(self.name)
        if known is not None and (
            topic.next_segment < known.topic.next_segment or 0 < description.revision < known.revision
        ):
            return False
        self._description = description
        self._ids = frozenset(segment.id for segment in description.segments)
        self._on_change(description)
        self.confirm()
        self._updated.fire()
        return True

    def confirm(self) -> None:
        """Note that a broker has nothing newer than the description."""
        self.current_s = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Cancel all queries and updates."""
        self._cluster.updates.forget(self)
        if self._refreshing is not None:
            self._refreshing.cancel()
        for query in self._queries:
            query.cancel()

    def _query_done(self, query: asyncio.Task[TopicDescription]) -> None:
        del self._queries[query]
        _retrieve(query)


def _retrieve(done: "asyncio.Task[TopicDescription]") -> None:
    """Retrieve the task's error, or asyncio logs it when all waiters were cancelled."""
    if not done.cancelled():
        done.exception()
