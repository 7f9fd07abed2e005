"""Primary side of replication: one stream to each follower, and the offset up to which each holds all frames."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from weakref import WeakValueDictionary

from seaweedmq.broker.memory.broker_memory import COPIES
from seaweedmq.broker.memory.budget import MemoryBudget
from seaweedmq.broker.segment.suspicions import Suspicions
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
from seaweedmq.runtime.grouped_logger import GroupedLogger
from seaweedmq.runtime.signal import Signal

log = logging.getLogger(__name__)

SEND_BYTES = 1024 * 1024
"""Most bytes of frames in one message, unless the first frame is larger."""
SHARE_BYTES = COPIES * LARGE_MESSAGE_BYTES
"""Memory in bytes that one large message on its way takes."""
PROGRESS_INTERVAL_S = 0.1
"""Shortest interval in seconds between two progress notes of one segment."""


class ReplicationContext:
    """The context of the replicate streams of all segments of one broker, over all its incarnations."""

    def __init__(
        self, dial: Callable[[str], BrokerApi], memory: MemoryBudget, timeout_s: float, suspicions: Suspicions
    ) -> None:
        """Create the context; ``memory`` is for messages to followers, ``timeout_s`` the longest lack of progress."""
        self.dial = dial
        self.memory = memory
        self.timeout_s = timeout_s
        self.suspicions = suspicions
        self.lost_followers = GroupedLogger(log)
        """Grouped log of lost followers: thousands of segments lose a dead broker at the same time."""
        self._progress: WeakValueDictionary[str, FollowerProgress] = WeakValueDictionary()

    def progress_of(self, follower: str) -> FollowerProgress:
        """Return a follower's progress over all segments, by broker id."""
        return self._progress.setdefault(follower, FollowerProgress())


class FollowerLink:
    """The primary's link to one follower of one segment."""

    def __init__(
        self,
        *,
        follower: str,
        opening: ReplicateOpen,
        log: SegmentLog,
        context: ReplicationContext,
        appended: Signal,
        on_held: Callable[[], None],
    ) -> None:
        """Prepare the link; ``run`` opens it."""
        self.follower = follower
        """The broker id of the follower."""
        self.held = log.committed
        """The offset below which the follower holds all frames."""
        self._dial = context.dial
        self._opening = opening
        self._log = log
        self._appended = appended
        self._on_held = on_held
        self._timeout_s = context.timeout_s
        self._progress = context.progress_of(follower)
        self._memory = context.memory
        self._message_bytes_max = SMALL_MESSAGE_BYTES
        """The message size in bytes that the follower accepts at the moment."""
        self._notified = log.flushed
        """The offset below which the follower has been notified that it may free all frames."""
        self._limit: asyncio.Timeout | None = None
        self._failure: SeaweedMQError | None = None
        self._has_answered = False
        self._watch: asyncio.TimerHandle | None = None
        self._notifying: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Replicate until cancelled. An idle link has no timers and no tasks except its stream.

        Raises:
            Unavailable: If the stream broke.
            DeadlineExceeded: If the follower made no progress for longer than the timeout.
            Fenced: If the segment is being sealed.
            ProtocolViolation: If the follower reports an offset that it cannot hold.
        """
        try:
            async with asyncio.timeout(None) as self._limit:
                self._expect_progress()
                try:
                    await self._replicate()
                finally:
                    self._limit = None  # the stream is ending: a later failure has nothing to stop
        except TimeoutError:
            assert self._failure is not None, "only _fail sets a limit"
            raise self._failure from None
        finally:
            if self._watch is not None:
                self._watch.cancel()
            if self._notifying is not None:
                self._notifying.cancel()
                await asyncio.wait({self._notifying})

    def on_flushed(self) -> None:
        """Notify the follower, in the background, of frames that are now both committed and flushed: it frees them."""
        if self._notifying is None and self._limit is not None and self._freeable_end() > self._notified:
            self._notifying = asyncio.create_task(self._notify(), name=f"send progress to {self.follower}")

    def _freeable_end(self) -> int:
        """Return the offset below which frames are committed and flushed, so that the follower may free them."""
        return min(self._log.flushed, self._log.committed)

    async def _replicate(self) -> None:
        async with closing(self._dial(self.follower).replicate(self._requests())) as replies:  # also closes requests
            async for reply in replies:
                if not self.held <= reply.end_offset <= self._log.end:
                    raise ProtocolViolation(
                        f"follower {self.follower} reports that it holds offsets up to {reply.end_offset}, "
                        f"outside [{self.held}, {self._log.end}]: it violates the protocol"
                    )
                self.held = reply.end_offset
                self._has_answered = True
                self._progress.answered_s = asyncio.get_running_loop().time()
                self._message_bytes_max = reply.message_bytes_max
                self._on_held()
        raise Unavailable(f"follower {self.follower} ended the replicate stream")

    def _expect_progress(self) -> None:
        """Watch the follower's progress, because it has frames to take."""
        if self._watch is None:
            self._watch_progress(asyncio.get_running_loop().time())

    def _watch_progress(self, since_s: float) -> None:
        """Check the progress after the timeout; ``since_s`` is the time of the last progress."""
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(self._timeout_s, self._check_progress, self.held, since_s, loop.time())

    def _check_progress(self, held: int, since_s: float, began_s: float) -> None:
        """Fail the link if the follower had frames to take but made no progress in time: see ``FollowerProgress``."""
        self._watch = None
        waited_s = asyncio.get_running_loop().time() - since_s
        has_all = self.held >= self._log.end
        if has_all and self._has_answered:
            return
        if has_all or self.held > held:
            self._expect_progress()
        elif not self._progress.is_abandoned(began_s, waited_s, self._timeout_s):
            self._watch_progress(since_s)
        else:
            text = f"follower {self.follower} held nothing beyond offset {held} for {waited_s:.1f} s"
            self._fail(DeadlineExceeded(text))

    async def _notify(self) -> None:
        try:
            while (flushed := self._freeable_end()) > self._notified:
                committed = self._log.committed
                await self._dial(self.follower).call(
                    NoteProgress(ref=self._opening.ref, committed=committed, flushed=flushed)
                )
                self._notified = flushed
                await asyncio.sleep(PROGRESS_INTERVAL_S)
        except SeaweedMQError as error:
            self._fail(error)
        finally:
            self._notifying = None

    def _fail(self, error: SeaweedMQError) -> None:
        """Make ``run`` raise this error."""
        if self._failure is None and self._limit is not None:
            self._failure = error
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _requests(self) -> AsyncGenerator[ReplicateRequest, None]:
        """Yield messages as large as the follower accepts, or small ones if the memory budget is used up.

        Replication never waits for memory: the timeout would drop a follower that gets no frames.
        """
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
    """Yield one message, or the head and the payload parts of a frame that is too large for one."""
    size = sum(e.size_bytes for e in entries)
    if size > message_bytes_max:
        yield FrameHead(entries[0].header)
        for piece in split_payload(entries[0].payload, piece_bytes):
            yield ReplicateFrames(piece)
    elif entries:
        yield ReplicateFrames(pack_frames([part for e in entries for part in (e.header, e.payload)]))
