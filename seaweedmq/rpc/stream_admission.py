"""Admission of streams to a server: their number, and the memory that each reserves."""

import logging
from collections.abc import AsyncIterator
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
)
from typing import Protocol

from seaweedmq.errors import ResourceExhausted
from seaweedmq.runtime.log_once import RejectionLog

_log = logging.getLogger(__name__)


class StreamMemory(Protocol):
    """A source of memory for streams."""

    def ahead(self) -> AbstractContextManager[int]:
        """Reserve memory for the life of a stream of channels; the value is the bytes that clients may send ahead."""

    def lent(self) -> AbstractAsyncContextManager[None]:
        """Reserve memory for the life of one stream; ResourceExhausted if none is free in time."""


class StreamAdmission:
    """The admission of one server's streams."""

    def __init__(self, streams_max: int, memory: StreamMemory | None) -> None:
        """Create the admission; without ``memory``, streams reserve none."""
        self._streams_max = streams_max
        self._memory = memory
        self._streams = 0
        self._rejections = RejectionLog(_log, "streams")

    def ahead(self) -> AbstractContextManager[int]:
        """Reserve memory for a stream of channels: see ``StreamMemory.ahead``."""
        return self._memory.ahead() if self._memory else nullcontext(0)

    @asynccontextmanager
    async def count(self) -> AsyncIterator[None]:
        """Count a stream; ResourceExhausted if the server has as many as its limit."""
        if self._streams >= self._streams_max:
            error = ResourceExhausted(
                f"this broker serves {self._streams} streams, its limit: close some, use more brokers, "
                "or raise streams_max"
            )
            self._rejections.add(error)
            raise error
        self._streams += 1
        try:
            yield
        finally:
            self._streams -= 1

    @asynccontextmanager
    async def admit(self) -> AsyncIterator[None]:
        """Count a stream and reserve its memory; ResourceExhausted if either fails.

        Streams between brokers are only counted: waiting streams may depend on them.
        """
        async with self.count(), AsyncExitStack() as held:
            if self._memory:
                try:
                    await held.enter_async_context(self._memory.lent())
                except ResourceExhausted as error:
                    self._rejections.add(error)
                    raise
            yield
