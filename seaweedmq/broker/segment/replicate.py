"""The primary's side of replication: one stream to each follower, and how far each of them is."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator

from seaweedmq.broker.memory.broker_memory import COPIES
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.codec.frame import split_payload
from seaweedmq.core.segment.follower_progress import FollowerProgress
from seaweedmq.core.segment.segment_log import LogEntry, SegmentLog
from seaweedmq.errors import DeadlineExceeded, ProtocolViolation, SeaweedMQError, Unavailable
from seaweedmq.model.messages.calls import NoteProgress
from seaweedmq.model.messages.frames import LARGE_MESSAGE_BYTES, SENT_PIECE_BYTES, SMALL_MESSAGE_BYTES, FrameHead
from seaweedmq.model.messages.replication import ReplicateFrames, ReplicateOpen, ReplicateRequest
from seaweedmq.ports import BrokerApi
from seaweedmq.rpc.messages.frames import pack_frames
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
        on_held: Callable[[], None],
        timeout_s: float,
        progress: FollowerProgress,
        memory: MemoryBudget,
    ) -> None:
        """``progress``: of the follower in all segments."""
        self.follower = follower
        """Broker id."""
        self.held = log.committed
        """The follower holds everything below."""
        self._dial = dial
        self._opening = opening
        self._log = log
        self._appended = appended
        self._on_held = on_held
        self._timeout_s = timeout_s
        self._progress = progress
        self._memory = memory
        self._message_bytes_max = SMALL_MESSAGE_BYTES
        """What the follower takes."""
        self._told = log.flushed
        """The follower may forget everything below, and knows it."""
        self._limit: asyncio.Timeout | None = None
        self._failure: SeaweedMQError | None = None
        self._has_answered = False
        self._watch: asyncio.TimerHandle | None = None
        self._telling: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Replicate until cancelled. While nothing comes, nothing runs but the conversation.

        Raises:
            Unavailable: the conversation broke.
            DeadlineExceeded: the follower held something back for longer than the timeout.
            Fenced: the segment is being sealed.
            ProtocolViolation: the follower says that it holds what it can not.
        """
        try:
            async with asyncio.timeout(None) as self._limit:
                self._expect_progress()
                try:
                    await self._replicate()
                finally:
                    self._limit = None  # it is ending: what fails from now on has nothing to end
        except TimeoutError:
            assert self._failure is not None, "only _fail sets a limit"
            raise self._failure from None
        finally:
            if self._watch is not None:
                self._watch.cancel()
            if self._telling is not None:
                self._telling.cancel()
                await asyncio.wait({self._telling})

    def on_flushed(self) -> None:
        """What is both committed and fsynced may have become more: let the follower forget it."""
        if self._telling is None and self._limit is not None and self._news() > self._told:
            self._telling = asyncio.create_task(self._tell(), name=f"tell {self.follower}")

    def _news(self) -> int:
        return min(self._log.flushed, self._log.committed)

    async def _replicate(self) -> None:
        async with closing(self._dial(self.follower).replicate(self._requests())) as replies:  # it closes the requests
            async for reply in replies:
                if not self.held <= reply.end_offset <= self._log.end:
                    raise ProtocolViolation(
                        f"follower {self.follower} says it holds offsets up to {reply.end_offset}, "
                        f"after {self.held} and of {self._log.end}: it broke the protocol"
                    )
                self.held = reply.end_offset
                self._has_answered = True
                self._progress.answered_s = asyncio.get_running_loop().time()
                self._message_bytes_max = reply.message_bytes_max
                self._on_held()
        raise Unavailable(f"follower {self.follower} ended the replicate stream")

    def _expect_progress(self) -> None:
        """There is something to hold."""
        if self._watch is None:
            self._watch_progress(asyncio.get_running_loop().time())

    def _watch_progress(self, since_s: float) -> None:
        """``since_s``: when the follower held what it holds."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._timeout_s, self._check_progress, self.held, since_s, loop.time())

    def _check_progress(self, held: int, since_s: float, began_s: float) -> None:
        """A follower that makes no progress although there is something to hold is given up after the timeout, unless
        it makes progress in other segments."""
        self._watch = None
        waited_s = asyncio.get_running_loop().time() - since_s
        has_all = self.held >= self._log.end
        if has_all and self._has_answered:
            return
        if has_all or self.held > held:
            self._expect_progress()
        elif not self._progress.is_given_up(began_s, waited_s, self._timeout_s):
            self._watch_progress(since_s)
        else:
            text = f"follower {self.follower} held nothing beyond offset {held} for {waited_s:.1f} s"
            self._fail(DeadlineExceeded(text))

    async def _tell(self) -> None:
        try:
            while (flushed := self._news()) > self._told:
                committed = self._log.committed
                await self._dial(self.follower).call(
                    NoteProgress(ref=self._opening.ref, committed=committed, flushed=flushed)
                )
                self._told = flushed
                await asyncio.sleep(TELL_INTERVAL_S)
        except SeaweedMQError as error:
            self._fail(error)
        finally:
            self._telling = None

    def _fail(self, error: SeaweedMQError) -> None:
        """End ``run`` with this error."""
        if self._failure is None and self._limit is not None:
            self._failure = error
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _requests(self) -> AsyncGenerator[ReplicateRequest, None]:
        """Messages as large as the follower takes, or small ones where there is no memory: replicating waits for
        nobody, since a follower that is kept waiting would be given up."""
        yield self._opening
        sent = self.held
        while True:
            if self._log.end > sent:
                self._expect_progress()
            is_large = self._memory.take_now(SHARE_BYTES)
            message_bytes_max = self._message_bytes_max if is_large else SMALL_MESSAGE_BYTES
            try:
                entries = self._log.entries_from(sent, min(SEND_BYTES, message_bytes_max))
                piece_bytes = SENT_PIECE_BYTES if is_large else SMALL_MESSAGE_BYTES
                for request in _messages(entries, message_bytes_max, piece_bytes):
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
