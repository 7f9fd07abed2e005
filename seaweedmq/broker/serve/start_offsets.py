"""Start offsets of segments after retention, for statistics, which may be some seconds old."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from seaweedmq.coordination.view import ClusterView
from seaweedmq.errors import SeaweedMQError
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import SegmentStore

log = logging.getLogger(__name__)

FRESH_S = 30.0
"""Age in seconds at which a listing is refreshed: retention runs minutes apart, and listing many files is slow."""
LISTING_WAIT_S_MAX = 1.0
"""Longest wait in seconds for a listing: hanging storage must not delay statistics that come from memory."""


@dataclass(slots=True)
class _Listing:
    uid: int
    at: float = -math.inf
    """The time of the last listing on the event loop's clock, in seconds; -inf before the first."""
    starts: dict[int, int] = field(default_factory=dict)
    """Segment -> offset below which retention removed its records. It never decreases."""
    refreshing: asyncio.Task[None] | None = None


class StartOffsets:
    """A cache of start offsets by topic.

    A topic is listed once without retention, because none of its files are removed then, else at most every 30 s.
    """

    def __init__(
        self,
        view: ClusterView,
        store: SegmentStore,
        spawn: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]],
    ) -> None:
        self._view = view
        self._store = store
        self._spawn = spawn
        self._listings: dict[TopicName, _Listing] = {}

    async def of(self, topic: Topic) -> Mapping[int, int]:
        """Return segment -> offset below which retention removed its records.

        With retention the mapping has all segments with files. Without it, it has those whose records were removed
        while retention was on.
        """
        listing = self._listing(topic)
        if listing.refreshing is not None:
            await asyncio.wait({listing.refreshing}, timeout=LISTING_WAIT_S_MAX)
        return listing.starts

    def known(self, topic: Topic) -> Mapping[int, int] | None:
        """Return the last known result of :meth:`of` at once; None before the first listing, which it starts."""
        listing = self._listing(topic)
        return None if math.isinf(listing.at) else listing.starts

    def _listing(self, topic: Topic) -> _Listing:
        """Return the listing of a topic, and start a refresh if it is old."""
        listing = self._listings.get(topic.name)
        if listing is None or listing.uid != topic.uid:
            listing = self._listings[topic.name] = _Listing(topic.uid)
        if listing.refreshing is None and self._is_old(listing, topic):
            listing.refreshing = self._spawn(self._refresh(topic, listing), f"start offsets of {topic.name}")
        return listing

    def _is_old(self, listing: _Listing, topic: Topic) -> bool:
        is_shrinking = topic.expires
        return asyncio.get_running_loop().time() - listing.at >= (FRESH_S if is_shrinking else math.inf)

    async def _refresh(self, topic: Topic, listing: _Listing) -> None:
        try:
            starts = dict(await self._store.removed(topic.name, topic.uid))
            if topic.expires:
                starts = _kept_from(await self._store.list_topic_files(topic.name, uid=topic.uid), starts)
            listing.starts, listing.at = starts, asyncio.get_running_loop().time()
        except SeaweedMQError as error:
            log.info("listing failed: %s, statistics use older start offsets: %s; retrying", topic.name, error)
        finally:
            listing.refreshing = None
            for name in self._listings.keys() - self._view.topics.keys():
                del self._listings[name]


def _kept_from(files: Iterable[SegmentFile], removed: Mapping[int, int]) -> dict[int, int]:
    """Return segment -> offset of its first retained record, for the segments that have files."""
    lowest: dict[int, int] = {}
    for file in files:
        lowest[file.segment] = min(file.base_offset, lowest.get(file.segment, file.base_offset))
    return {segment: max(base, removed.get(segment, 0)) for segment, base in lowest.items()}
