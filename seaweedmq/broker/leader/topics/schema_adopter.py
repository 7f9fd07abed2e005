"""Adoption of a schema: an empty topic gets the schema of its first table, even while plain records may arrive.

1. The leader writes the topic with the schema that it is ``adopting``. A primary that knows of it appends no plain
   frame: these wait for the decision.
2. It queries every primary for the ends of its segments as of that revision, committed or not.
3. It writes the topic again: with the schema if the segments are empty, else without. The transaction compares the
   topic's revision, which every new segment changes: no primary was left out, nor replaced since.

The state is in etcd, so a new leader continues the decision of an earlier one.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from weakref import WeakValueDictionary

from seaweedmq.broker.leader.metadata import Metadata
from seaweedmq.codec.state import keys
from seaweedmq.coordination.description import describe
from seaweedmq.core.lineage.topology import MetadataChange
from seaweedmq.errors import InvalidArgument, SeaweedMQError, Unavailable
from seaweedmq.model.description import OPEN
from seaweedmq.model.messages.calls import LogEnds
from seaweedmq.model.topic import Topic, TopicName
from seaweedmq.ports import BrokerApi, Compare
from seaweedmq.runtime.log_once import OnceLogger

log = logging.getLogger(__name__)

DECISION_TIMEOUT_S = 4.0
"""Longest wait of plain records for the decision, in seconds, unless etcd is unreachable."""

LEFTOVER_RETRY_S = 5.0
"""Pause before another attempt of a decision that an earlier leader left open, in seconds."""


class SchemaAdopter:
    """The leader's part of the adoption."""

    def __init__(self, metadata: Metadata, dial: Callable[[str], BrokerApi]) -> None:
        self._metadata = metadata
        self._dial = dial
        self._failures_log = OnceLogger(log, logging.INFO)
        self._locks: WeakValueDictionary[TopicName, asyncio.Lock] = WeakValueDictionary()

    async def run(self) -> None:
        """Decide adoptions that an earlier leader, or a cancelled caller, left open, until cancelled."""
        view = self._metadata.view
        while True:
            seen = view.changes
            for name in self._undecided():
                async with self._lock_of(name):
                    await self._decide_leftover(name)
            with suppress(TimeoutError):  # retry what etcd rejected: plain records wait for it
                async with asyncio.timeout(LEFTOVER_RETRY_S if self._undecided() else None):
                    await view.wait_change(seen)

    def _undecided(self) -> list[TopicName]:
        return [name for name, topic in self._metadata.view.topics.items() if topic.adopting is not None]

    async def _decide_leftover(self, name: TopicName) -> None:
        topic = self._metadata.view.topics.get(name)
        if topic is None or topic.adopting is None:
            return
        try:
            await self._decide(name)
        except SeaweedMQError as error:
            self._failures_log.add(f"schema decision of {name}", error)
        else:
            self._failures_log.over(f"schema decision of {name}")

    async def adopt(self, name: TopicName, schema: bytes) -> int:
        """Give the topic the schema, if it is empty; return the revision as of which it has the schema.

        Raises InvalidArgument if it has another schema, or plain records, committed or not, and Unavailable if a
        primary does not answer.
        """
        async with self._lock_of(name):
            async for attempt in self._metadata.on_conflict():
                with attempt:
                    topic = self._metadata.topic(name)
                    if topic.adopting is not None:
                        await self._decide(name)
                        topic = self._metadata.topic(name)
                    if topic.schema is not None:
                        _check_same(topic, schema)
                        return self._metadata.view.revision
                    await self._write(replace(topic, adopting=schema))
            return await self._decide(name)

    def _lock_of(self, name: TopicName) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    async def _write(self, topic: Topic, revision: int | None = None) -> int:
        """Write the topic, if its revision is the given one, or as the view has it."""
        key = keys.topic_key(topic.name)
        compares = [] if revision is None else [Compare(key, mod_revision=revision)]
        written = await self._metadata.write(MetadataChange(topic, ()), compares)
        await self._metadata.view.wait_revision(written)
        return written

    async def _decide(self, name: TopicName) -> int:
        """Decide the adoption, with the errors of :meth:`adopt`. Only loss of etcd or the lead leaves it open."""
        try:
            async with asyncio.timeout(DECISION_TIMEOUT_S):
                return await self._metadata.persistently()(self._try_to_decide, name)
        except TimeoutError:
            await self._metadata.persistently()(self._give_up, name)
            raise Unavailable(
                f"topic {name} cannot adopt a schema now, as a primary of its segments does not answer: retry"
            ) from None

    async def _try_to_decide(self, name: TopicName) -> int:
        topic, revision = self._metadata.topic(name), self._metadata.view.topic_revision(name)
        if topic.adopting is None:
            return self._decided(topic)
        ends = await self._ends(topic, revision)
        taken = sorted(segment for segment, end in ends.items() if end > 0)
        decided = replace(topic, adopting=None, schema=None if taken else topic.adopting)
        written = await self._write(decided, revision)
        if taken:
            raise holds_records(name, taken[0])
        return written

    def _decided(self, topic: Topic) -> int:
        """Return the revision of an earlier decision whose answer from etcd was lost."""
        if topic.schema is None:
            raise holds_records(topic.name, None)
        return self._metadata.view.revision

    async def _give_up(self, name: TopicName) -> None:
        topic = self._metadata.view.topics.get(name)
        if topic is not None and topic.adopting is not None:
            await self._write(replace(topic, adopting=None))

    async def _ends(self, topic: Topic, revision: int) -> Mapping[int, int]:
        """Return the ends of all open segments; raise Unavailable if one of them is unknown."""
        segments = describe(self._metadata.view, topic.name, OPEN).segments
        primaries = sorted({s.primary for s in segments})

        async def ask(primary: str) -> Mapping[int, int]:
            return await self._dial(primary).call(LogEnds(topic.name, topic.uid, revision))

        answers = await asyncio.gather(*map(ask, primaries))
        of_primary = dict(zip(primaries, answers, strict=True))
        ends = {s.id: of_primary[s.primary].get(s.id) for s in segments}
        known = {segment: end for segment, end in ends.items() if end is not None}
        if len(known) < len(ends):
            raise Unavailable(f"segment {min(ends.keys() - known.keys())} of {topic.name} is being opened: retry")
        return known


def holds_records(name: TopicName, segment: int | None) -> InvalidArgument:
    """Return the error of a topic with plain records that cannot get a schema."""
    where = "" if segment is None else f" (segment {segment})"
    return InvalidArgument(
        f"topic {name} has plain records{where}, or some are in flight, and cannot get a schema: create a new topic "
        "for tables"
    )


def _check_same(topic: Topic, schema: bytes) -> None:
    if topic.schema != schema:
        raise InvalidArgument(f"topic {topic.name} has another schema already: send tables that fit it")
