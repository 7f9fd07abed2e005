"""Catalogs: the files of topics as of the last listing, with what this process created and deleted since.

A listing costs as much as twelve reads, so reads of a segment use a catalog until it lacks their offset. A listing that
runs while objects are created may miss them. So the own changes since its begin are applied to its result, and the
order of what it returns has no meaning.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from seaweedmq.codec.object_keys import TopicKey
from seaweedmq.model.files import SegmentFile

FILES_MAX: Final = 200_000
"""Limit of the files in all catalogs, some 500 bytes each; topics that were read longest ago are dropped."""


class TopicCatalog:
    """The files of one topic. Belongs to the event loop."""

    def __init__(self) -> None:
        self._segments: defaultdict[int, dict[str, SegmentFile]] = defaultdict(dict)
        self._listing = asyncio.Lock()
        self._begun = 0
        """Number of listings begun."""
        self._latest = 0
        """Number of the last listing that succeeded."""
        self._changes: list[tuple[SegmentFile, bool]] | None = None
        """Own changes since the begin of a running listing: files, and whether each was created or deleted."""

    def __len__(self) -> int:
        return sum(map(len, self._segments.values()))

    @property
    def is_listed(self) -> bool:
        """Whether the topic was ever listed."""
        return self._latest > 0

    def add(self, file: SegmentFile) -> None:
        """Note a file that this process created."""
        self._change(file, is_created=True)

    def remove(self, file: SegmentFile) -> None:
        """Note a file that this process deleted."""
        self._change(file, is_created=False)

    def covers(self, segment: int, offset: int) -> bool:
        """Whether a known file of a segment has an offset."""
        known = self._segments.get(segment, {}).values()
        return self.is_listed and any(
            file.base_offset <= offset < file.end_offset for file in known if file.end_offset is not None
        )

    def files(self, segment: int | None = None) -> list[SegmentFile]:
        """Return the files of a segment, or of all, by segment, base offset, kind, writer and end."""
        chosen = self._segments.values() if segment is None else [self._segments.get(segment, {})]
        return sorted((file for known in chosen for file in known.values()), key=_order)

    async def renew(self, listed: Callable[[], Awaitable[Iterable[SegmentFile]]]) -> None:
        """List again; a call that waited for others shares a listing that began after it."""
        asked = self._begun
        async with self._listing:
            if self._latest > asked:
                return
            self._begun += 1
            self._changes = []
            try:
                found = await listed()
                changes, self._changes = self._changes, None
            finally:
                self._changes = None
            self._segments.clear()
            for file in found:
                self._segments[file.segment][file.path] = file
            for file, is_created in changes:
                self._change(file, is_created=is_created)
            self._latest = self._begun

    def _change(self, file: SegmentFile, *, is_created: bool) -> None:
        if self._changes is not None:
            self._changes.append((file, is_created))
        if is_created:
            self._segments[file.segment][file.path] = file
        else:
            self._segments[file.segment].pop(file.path, None)


class Catalogs:
    """The catalogs of the topics that a process reads."""

    def __init__(self) -> None:
        self._catalogs: OrderedDict[TopicKey, TopicCatalog] = OrderedDict()

    def of(self, topic: TopicKey) -> TopicCatalog:
        """Return the catalog of a topic, for a reader."""
        catalog = self._catalogs.setdefault(topic, TopicCatalog())
        self._catalogs.move_to_end(topic)
        return catalog

    def add(self, topic: TopicKey, file: SegmentFile) -> None:
        """Note a file that this process created; a topic without a catalog is listed when it is read."""
        if (catalog := self._catalogs.get(topic)) is not None:
            catalog.add(file)

    def remove(self, topic: TopicKey, file: SegmentFile) -> None:
        """Note a file that this process deleted."""
        if (catalog := self._catalogs.get(topic)) is not None:
            catalog.remove(file)

    def forget(self, topic: TopicKey) -> None:
        """Drop the catalog of a topic."""
        self._catalogs.pop(topic, None)

    def shrink(self) -> None:
        """Drop the catalogs that were read longest ago until the others keep the limit."""
        files = sum(map(len, self._catalogs.values()))
        while files > FILES_MAX and len(self._catalogs) > 1:
            _, dropped = self._catalogs.popitem(last=False)
            files -= len(dropped)


def _order(file: SegmentFile) -> tuple[int, int, str, str, int]:
    return file.segment, file.base_offset, file.kind, file.writer, file.end_offset or 0
