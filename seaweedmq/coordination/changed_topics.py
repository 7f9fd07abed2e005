"""Topics that changed since a reader of the cluster view last took them."""

import asyncio
from collections.abc import Iterable, Sequence

from seaweedmq.model.topic import TopicName


class ChangedTopics:
    """The topics that changed, gathered for a reader that processes only changes."""

    def __init__(self, readers: list["ChangedTopics"]) -> None:
        """Register the reader with the view's ``readers``, from which :meth:`close` removes it."""
        self._names: dict[TopicName, None] = {}  # not a set: the order of the changes is deterministic
        self._changed = asyncio.Event()
        self._readers = readers
        readers.append(self)

    def add(self, names: Iterable[TopicName]) -> None:
        """Add topics whose settings, segments or existence changed."""
        self._names.update(dict.fromkeys(names))
        self._changed.set()

    async def take(self) -> Sequence[TopicName]:
        """Wait for a change; return the topics that changed since the last call, none after other changes."""
        await self._changed.wait()
        return self.take_now()

    def take_now(self) -> Sequence[TopicName]:
        """Return the topics that changed since the last call."""
        self._changed.clear()
        names, self._names = tuple(self._names), {}
        return names

    def close(self) -> None:
        """Stop gathering."""
        self._readers.remove(self)
