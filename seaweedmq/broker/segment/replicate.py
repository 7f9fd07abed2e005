"""The primary's side of replication: one stream to each follower, and how far each of them is."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.memory.shares import COPIES
from seaweedmq.codec.frame import split_payload
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import DeadlineExceeded, ProtocolViolation, Unavailable
from seaweedmq.model.calls import NoteProgress
from seaweedmq.model.frames import LARGE_MESSAGE_BYTES, PIECE_BYTES, SMALL_MESSAGE_BYTES, FrameHead
from seaweedmq.model.replication import ReplicateFrames, ReplicateOpen, ReplicateRequest
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc.frames import pack_frames
from seaweedmq.runtime.closing import closing
from seaweedmq.runtime.signal import Signal

SEND_BYTES = 1024 * 1024
SHARE_BYTES = COPIES * LARGE_MESSAGE_BYTES
"""Memory of one message on its way."""
TELL_INTERVAL_S = 0.1
"""Least time between two pieces of news of one segment."""


class FollowerLink:
    """One follower of one segment, as its primary sees it."""

    def __init__(
        self,
        *,
        follower: str,
        dial: Callable[[str], BrokerApi],
        opening: ReplicateOpen,
        log: SegmentLog,
        appended: Signal,
        flushed: Signal,
        on_held: Callable[[], None],
        timeout_s: float,
        memory: MemoryBudget,
    ) -> None:
        self.follower = follower
        """Broker id."""
        self.held = log.committed
        """The follower holds everything below."""
        self._dial = dial
        self._opening = opening
        self._log = log
        self._appended = appended
        self._flushed = flushed
        self._on_held = on_held
        self._timeout_s = timeout_s
        self._memory = memory
        self._message_bytes_max = SMALL_MESSAGE_BYTES
        """What the follower takes."""

    async def run(self) -> None:
        """Replicate until cancelled.

        Raises:
            Unavailable: the stream broke.
            DeadlineExceeded: the follower held something back for longer than the timeout.
            Fenced: the segment is being sealed.
            ProtocolViolation: the follower says that it holds what it can not.
        """
        tasks = {
            asyncio.create_task(work, name=f"{name} {self.follower}")
            for work, name in ((self._replicate(), "replicate to"), (self._watch(), "watch"), (self._tell(), "tell"))
        }
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _replicate(self) -> None:
        async with closing(self._dial(self.follower).replicate(self._requests())) as replies:  # it closes the requests
            async for reply in replies:
                if not self.held <= reply.end_offset <= self._log.end:
                    raise ProtocolViolation(
                        f"follower {self.follower} says it holds offsets up to {reply.end_offset}, "
                        f"after {self.held} and of {self._log.end}: it broke the protocol"
                    )
                self.held = reply.end_offset
                self._message_bytes_max = reply.message_bytes_max
                self._on_held()
        raise Unavailable(f"follower {self.follower} ended the replicate stream")

    async def _watch(self) -> None:
        """A follower that makes no progress although there is something to hold is given up after the timeout."""
        while True:
            while self.held >= self._log.end:
                await self._appended.wait()
            held, end = self.held, self._log.end
            await asyncio.sleep(self._timeout_s)
            if held < end and self.held == held:
                raise DeadlineExceeded(
                    f"follower {self.follower} held nothing beyond offset {held} for {self._timeout_s:.1f} s"
                )

    async def _tell(self) -> None:
        """Let the follower forget what is flushed."""
        told = self._log.flushed
        while True:
            while (flushed := min(self._log.flushed, self._log.committed)) <= told:
                await self._flushed.wait()
            await self._dial(self.follower).call(
                NoteProgress(ref=self._opening.ref, committed=self._log.committed, flushed=flushed)
            )
            told = flushed
            await asyncio.sleep(TELL_INTERVAL_S)

    async def _requests(self) -> AsyncGenerator[ReplicateRequest, None]:
        """Messages as large as the follower takes, or small ones where there is no memory: replicating waits for
        nobody, since a follower that is kept waiting would be given up."""
        yield self._opening
        sent = self.held
        while True:
            is_large = self._memory.take_now(SHARE_BYTES)
            message_bytes_max = self._message_bytes_max if is_large else SMALL_MESSAGE_BYTES
            try:
                entries = self._log.entries_from(sent, min(SEND_BYTES, message_bytes_max))
                for request in _messages(entries, message_bytes_max, PIECE_BYTES if is_large else SMALL_MESSAGE_BYTES):
                    yield request
            finally:
                if is_large:
                    self._memory.give(SHARE_BYTES)
            if entries:
                sent = entries[-1].end_offset
            else:
                await self._appended.wait()


def _messages(entries: list[LogEntry], message_bytes_max: int, piece_bytes: int) -> Iterator[ReplicateRequest]:
    """One message, or a frame that is too large for one as head and pieces."""
    size = sum(e.size_bytes for e in entries)
    if size > message_bytes_max:
        yield FrameHead(entries[0].header)
        for piece in split_payload(entries[0].payload, piece_bytes):
            yield ReplicateFrames(piece)
    elif entries:
        yield ReplicateFrames(pack_frames([part for e in entries for part in (e.header, e.payload)]))
