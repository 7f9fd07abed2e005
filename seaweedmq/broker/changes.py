"""Changes of segments: seal what is open, and open successors."""

import logging
from collections.abc import Callable

from seaweedmq.broker.documents import Documents
from seaweedmq.broker.metadata import Metadata
from seaweedmq.broker.placement import Placement
from seaweedmq.broker.sealer import Sealer
from seaweedmq.codec import keys
from seaweedmq.core.topology import Sealing, succeed
from seaweedmq.errors import Unavailable
from seaweedmq.model.replication import SealedLog
from seaweedmq.model.segment import Segment
from seaweedmq.model.topic import TopicName
from seaweedmq.ports import Compare

log = logging.getLogger(__name__)


class Changes:
    """Carries out what is to change about segments. Every step may be done twice, by one leader or the next."""

    def __init__(
        self,
        *,
        metadata: Metadata,
        documents: Documents,
        placement: Placement,
        sealer: Sealer,
        wall_us: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self._documents = documents
        self._placement = placement
        self._sealer = sealer
        self._wall_us = wall_us
        self._under_way: set[tuple[TopicName, int]] = set()

    def concerns(self, name: TopicName, segment: int) -> bool:
        """Whether the segment is being sealed. Its primary ends its replicate streams, which is no reason to suspect
        it."""
        return (name, segment) in self._under_way

    async def replace(self, segment: Segment) -> None:
        """Seal a segment and open a successor of the same range.

        Raises:
            Unavailable: there is nobody to take it, or a replica lives and does not answer: nothing has changed.
            SeaweedMQError: the storage failed, or the files are damaged.
        """
        key = segment.topic, segment.id
        self._under_way.add(key)
        try:
            topic = self._metadata.topic(segment.topic)
            if not self._placement.of_successor(topic):
                raise Unavailable("every broker is being drained: it goes on when one is not")
            sealed = await self._sealer.seal(topic, segment, self._placement.suspects)
            if sealed is None:
                raise Unavailable("a replica lives but does not answer")
            await self._succeed(segment, *sealed)
        finally:
            self._under_way.discard(key)

    async def _succeed(self, segment: Segment, epoch: int, sealed: SealedLog) -> None:
        view = self._metadata.view
        async for attempt in self._metadata.on_conflict():
            with attempt:
                topic = self._metadata.topic(segment.topic)
                known = view.segments.get(segment.topic, {}).get(segment.id)
                if known is None or not known.is_open:
                    return
                placement = self._placement.of_successor(topic)
                if not placement:
                    raise Unavailable("every broker is being drained: it goes on when one is not")
                change = succeed(
                    topic,
                    [
                        Sealing(
                            segment=segment,
                            end_offset=sealed.end_offset,
                            epoch=epoch,
                            sequences=tuple(reversed(sealed.sequences)),
                        )
                    ],
                    ranges=[segment.slots],
                    placement=placement,
                    now_us=self._wall_us(),
                )
                revision = view.segment_revision(segment.topic, segment.id)
                unchanged = Compare(keys.segment_key(segment.topic, segment.id), mod_revision=revision)
                await view.wait_revision(await self._metadata.write(change, [unchanged]))
                self._documents.expect([segment.topic])  # written once all segments are served again
        log.info("sealed %s at offset %d", segment, sealed.end_offset)
