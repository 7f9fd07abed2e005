"""What is known of one topic, and kept as new as somebody needs it."""

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace

from seaweedmq.client.cluster.cluster import Cluster
from seaweedmq.errors import SeaweedMQError, Unavailable
from seaweedmq.model.description import ALL, OPEN, SegmentSelection, TopicDescription
from seaweedmq.model.messages.calls import AwaitedTopic
from seaweedmq.model.topic import TopicName, topic_recreated
from seaweedmq.runtime.retrying import is_retryable
from seaweedmq.runtime.signal import Signal

WANTED_S = 1.0
"""So long news of a topic is wanted after nobody waits for it any more: whoever waited may do so again at once."""


class TopicView:
    """What is known of one topic: its open segments as of the last look, and those that somebody asked for. Calls for a
    look at the same time share one answer."""

    def __init__(
        self,
        cluster: Cluster,
        name: TopicName,
        on_change: Callable[[TopicDescription], None],
        ask: Callable[[], Iterable[int]] = tuple,
    ) -> None:
        """``ask`` names the segments that every look asks for beside the open ones: somebody may ask for them next."""
        self._cluster = cluster
        self._name = name
        self._on_change = on_change
        self._ask = ask
        self._description: TopicDescription | None = None
        self._ids: frozenset[int] = frozenset()
        """Of the segments in the description."""
        self._looks: dict[asyncio.Task[TopicDescription], frozenset[int]] = {}
        """Under way -> segments that are asked for by their ids."""
        self._looking: asyncio.Task[None] | None = None
        self._told = Signal()
        """Fires with every description that is taken in."""
        self.current_s = -math.inf
        """When the description was the newest there was, by the loop's clock, as far as brokers told."""

    async def description(self, refresh: bool, ids: Iterable[int] = ()) -> TopicDescription:
        """What is known of the topic; with ``refresh``, or if one of the ids is not known, what a broker says now.

        One of the ids that is not in it was pruned if it is below ``topic.next_segment``, else it is not known yet.

        Raises:
            NotFound: no such topic, also if it was deleted and created again.
            Unavailable: no broker is as far as another one was before.
        """
        wanted = frozenset(ids)
        if not refresh and self._description is not None and wanted <= self._ids:
            return self._description
        look = next((task for task, asked in self._looks.items() if wanted <= asked), None)
        if look is None:
            asked = wanted.union(self._ask())
            look = asyncio.create_task(self._look(replace(OPEN, ids=tuple(sorted(asked)))))
            self._looks[look] = asked
            look.add_done_callback(self._looked)
        return await asyncio.shield(look)

    async def ends(self, segment: int, within_s: float) -> bool:
        """Wait so many seconds, or until a segment that the description has as open is known not to be any more:
        whether that is so. Brokers are asked to tell of it once they know."""
        is_open = self.is_open(segment)
        self.want(within_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                while self.is_open(segment) == is_open:
                    await self._told.wait()
        return is_open and not self.is_open(segment)

    def want(self, within_s: float) -> None:
        """Have brokers tell what is new for so many seconds: ``on_change`` hears it."""
        self._cluster.news.want(self, asyncio.get_running_loop().time() + within_s + WANTED_S)

    def keep_looking(self, pause_s: float) -> None:
        """Look anew from time to time, until closed or the topic is gone: ``on_change`` hears what nobody asked for."""
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again(pause_s), name=f"looks at {self._name}")

    async def _look_again(self, pause_s: float) -> None:
        while True:
            await asyncio.sleep(pause_s)
            try:
                await self.description(True)
            except SeaweedMQError as error:
                if not is_retryable(error):
                    return  # whoever sends or reads is told

    def is_open(self, number: int) -> bool:
        """Whether the description has the segment, as open."""
        assert self._description is not None, "somebody knows a segment, so there is a description"
        segment = self._description.segment(number)
        return segment is not None and segment.is_open

    def awaited(self) -> AwaitedTopic:
        """What is known, for a broker to tell what is newer."""
        assert self._description is not None, "as above"
        topic = self._description.topic
        ids = tuple(sorted(self._ask()))
        return AwaitedTopic(name=self._name, topic_uid=topic.uid, above=self._description.revision, ids=ids)

    async def whole(self) -> TopicDescription:
        """The topic with all its segments, as a broker says now. Raises NotFound."""
        return await self._look(ALL)

    async def _look(self, which: SegmentSelection) -> TopicDescription:
        uid = self._description.topic.uid if self._description is not None else 0
        told = await self._cluster.describe(self._name, which, self._cluster.config.rpc_timeout_s, uid)
        if self.know(told) or self._description is None:
            return told
        unknown = set(which.ids) - self._ids
        if unknown:
            raise Unavailable(f"segment {min(unknown)} of {self._name} is not known yet to the broker that was asked")
        return self._description

    def know(self, told: TopicDescription) -> bool:
        """Take in a description, unless it comes from a broker whose view lags: ids and revisions never fall. A
        publisher that believed an older one would number a segment's records anew, or send without the schema.

        Raises:
            NotFound: it is of another topic of the same name: who opened the earlier one has not asked for this.
        """
        known, topic = self._description, told.topic
        if known is not None and known.topic.uid != topic.uid:
            raise topic_recreated(self._name)
        if known is not None and (topic.next_segment < known.topic.next_segment or 0 < told.revision < known.revision):
            return False
        self._description = told
        self._ids = frozenset(segment.id for segment in told.segments)
        self._on_change(told)
        self.confirm()
        self._told.fire()
        return True

    def confirm(self) -> None:
        """A broker has told that nothing is newer than the description."""
        self.current_s = asyncio.get_running_loop().time()

    def close(self) -> None:
        """Ask no more."""
        self._cluster.news.forget(self)
        if self._looking is not None:
            self._looking.cancel()
        for look in self._looks:
            look.cancel()

    def _looked(self, look: asyncio.Task[TopicDescription]) -> None:
        del self._looks[look]
        _retrieve(look)


def _retrieve(done: "asyncio.Task[TopicDescription]") -> None:
    """Look at its error, or asyncio complains of it when everybody who waited is gone."""
    if not done.cancelled():
        done.exception()
