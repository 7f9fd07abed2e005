"""One walk over a log file, without IO: it says which bytes it wants and gives the frames in them, verified.

::

    while (wanted := scanner.wants()) is not None:
        run = scanner.feed(read(*wanted))

A writer that dies leaves a torn tail: bytes at the end that are not a whole frame. A machine that dies may lose blocks
of what was not fsynced and keep later ones (``lost_blocks``): that is a torn tail as well, whatever follows. Damage
looks the same at first; what tells it apart is that a sound frame of a higher offset follows, and no block was lost.
"""

from collections.abc import Sequence
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import HEADER_BYTES, MAGIC, Frame, FrameHeader, Truncated, decode_header
from seaweedmq.codec.logfile import LogPreamble, decode_preamble
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported, fresh
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic
from seaweedmq.storage.logs.log_index import Mark
from seaweedmq.storage.logs.lost_blocks import LostBlocks

READ_BYTES = 4 * 1024 * 1024
_SEEN_BYTES = 16
"""Of a frame that is jumped over, read to know that it is all there; a multiple of 8 keeps payloads aligned."""


class LogFrame(NamedTuple):
    """A verified frame and where it lies."""

    frame: Frame
    start: int
    """Of its header in ``FrameRun.data``."""
    position: int
    """Of its header in the file."""

    @property
    def end(self) -> int:
        """Of its payload in ``FrameRun.data``."""
        return self.start + self.frame.header.frame_bytes


class FrameRun(NamedTuple):
    """Frames of one read, back to back in ``data`` from the first one's start to the last one's end."""

    data: memoryview
    frames: Sequence[LogFrame]


class LogScanner:
    """State of the walk. Memory is one read, or the largest frame if that is larger.

    Invariant: every frame given was whole, passed both checksums, and began where the one before it ended.
    """

    def __init__(
        self,
        topic: Topic,
        file: SegmentFile,
        *,
        skip_below: int = 0,
        read_bytes: int = READ_BYTES,
        begin: Mark | None = None,
    ) -> None:
        """Frames that end at or below ``skip_below`` are passed over: only their headers are read and verified.

        ``begin``: where to, of an earlier walk over the same file; None: its start.
        """
        self._topic = topic
        self._file = file
        self._skip_below = skip_below
        self._read_bytes = read_bytes
        self._start = 0 if begin is None else begin.position
        """Position in the file of the first byte that was not understood. What was read behind it is read again: from
        the page cache that costs less than to join it with what follows."""
        self._needed_bytes = 0
        """From there on, to understand more."""
        self._jumped = 0
        """Size of the skipped frame whose last byte is still to be seen; 0 if none."""
        self._jumped_base = file.base_offset
        """Its base offset."""
        self._damage: Corrupt | None = None
        """What is wrong behind the last sound frame: a torn tail, until a sound frame is seen further on."""
        self._damage_proven = False
        self._lost = LostBlocks(0, 0)
        """Looks for what makes it a torn tail in any case."""
        self._proof_from = 0
        """Position from which on a sound frame proves damage."""
        self._torn_needs_proof = False
        """It is no torn tail unless a block was lost."""
        self._behind = file.base_offset
        self._done = False
        self.preamble: LogPreamble | None = None
        """None until it is read, and if the walk began behind it."""
        self._preamble_due = begin is None
        self.mark = begin
        """The last place at which another walk over the file may begin."""
        self.next_offset = file.base_offset if begin is None else begin.offset
        """End of the last sound frame."""
        self.torn: str | None = None
        """Once done: why the tail is not a frame; None if the file ends with a whole one."""
        self.foreign = False
        """The file belongs to an earlier topic of the same name and is ignored."""

    def wants(self) -> tuple[int, int] | None:
        """Position and length to read next; None when done.

        Raises:
            Corrupt: the frames given so far are followed by damage, and that by sound frames.
        """
        if self._damage is not None and self._damage_proven:
            raise fresh(self._damage)
        if self._done:
            return None
        seen = _SEEN_BYTES if self._jumped else 0
        # up to a multiple of what is read at once: the system fetches a page twice of which two reads have a part each
        unread = -(self._start + self._needed_bytes) % self._read_bytes
        return self._start - seen, seen + max(self._read_bytes, self._needed_bytes + unread)

    def stop(self) -> None:
        """The caller has all it needs; damage behind that is not its business."""
        self._damage = None
        self._done = True

    def feed(self, data: Frames) -> FrameRun:
        """Take what was read for :meth:`wants`; fewer bytes than wanted mean the end of the file.

        Raises:
            Corrupt: damaged preamble, or a file that is not what its name says.
            Unsupported: written by a later version.
        """
        wanted = self.wants()
        if wanted is None:
            raise AssertionError(f"{self._file.path}: fed after the end")
        at_end = len(data) < wanted[1]
        buffer = memoryview(data)
        if self._jumped:
            if len(data) < _SEEN_BYTES:
                return self._tear(f"the last frame's {self._jumped} bytes are not all there", restore=True)
            buffer = buffer[_SEEN_BYTES:]
            self._jumped = 0
        self._needed_bytes = 0
        if self._damage is not None:
            self._look_behind_damage(buffer, at_end)
            return FrameRun(buffer, ())
        position = self._read_preamble(buffer, at_end) if self._preamble_due else 0
        if position is None:
            return FrameRun(buffer, ())
        return self._read_frames(buffer, position, at_end)

    def _read_preamble(self, buffer: memoryview, at_end: bool) -> int | None:
        """Its length; None if no frames can be read, yet or at all."""
        file = self._file
        try:
            self.preamble, used = decode_preamble(buffer)
        except Truncated as e:
            if at_end:
                # A damaged length may point beyond the end of the file too: then there are frames.
                self._doubt(buffer, 0, at_end, str(e), behind=file.base_offset - 1)
                return None
            self._needed_bytes = 2 * len(buffer)
            return None
        except Corrupt as e:
            # All of a preamble is there when its checksum is looked at.
            self._torn_needs_proof = True
            self._doubt(buffer, 0, at_end, str(e), behind=file.base_offset - 1)
            if self._damage_proven:
                raise Corrupt(f"{file.path} can not be read: {e}") from e
            return None
        except Unsupported as e:
            raise Unsupported(f"{file.path}: {e}") from e
        p = self.preamble
        if p.topic == file.topic and p.topic_uid != self._topic.uid:
            self.foreign = self._done = True
            return None
        if (p.topic, p.segment, p.base_offset, p.writer) != (
            file.topic,
            file.segment,
            file.base_offset,
            file.writer,
        ):
            raise Corrupt(
                f"{file.path} was written as {p.topic}#{p.segment} from offset {p.base_offset} by {p.writer}: "
                "it was renamed or copied; move it away"
            )
        self._preamble_due = False
        return used

    def _read_frames(self, buffer: memoryview, position: int, at_end: bool) -> FrameRun:
        frames: list[LogFrame] = []
        total = len(buffer)
        while position < total:
            try:
                header = self._header_at(buffer, position)
                end = position + header.frame_bytes
                skipped = header.end_offset <= self._skip_below
                if end > total and at_end:
                    self._tear(f"the frame at byte {self._start + position} ends beyond the file")
                    return FrameRun(buffer, frames)
                if end > total and not skipped:
                    self._needed_bytes = header.frame_bytes
                    break
                payload = buffer[position + HEADER_BYTES : end]
                if not skipped and xxh3_64_intdigest(payload) != header.payload_checksum:
                    reason = "the payload does not match its checksum"
                    self._doubt(buffer, position, at_end, reason, size_bytes=header.frame_bytes)
                    return FrameRun(buffer, frames)
            except Truncated as e:
                if at_end:
                    self._tear(_reason(e))
                    return FrameRun(buffer, frames)
                self._needed_bytes = HEADER_BYTES
                break
            except Unsupported as e:
                raise Unsupported(f"{self._file.path} at byte {self._start + position}: {_reason(e)}") from e
            except Corrupt as e:
                self._doubt(buffer, position, at_end, _reason(e))
                return FrameRun(buffer, frames)
            if not skipped:
                frame = Frame(header, buffer[position : position + HEADER_BYTES], payload)
                frames.append(LogFrame(frame, position, self._start + position))
            elif end > total:
                self._jumped = header.frame_bytes
                self._jumped_base = header.base_offset
            self.next_offset = header.end_offset
            position = end
        self._start += position
        self._done = at_end and not self._jumped
        if not self._jumped:
            self.mark = Mark(self.next_offset, self._start)
        return FrameRun(buffer, frames)

    def _header_at(self, buffer: memoryview, position: int) -> FrameHeader:
        header = decode_header(buffer[position : position + HEADER_BYTES])
        if header.base_offset != self.next_offset:
            raise Corrupt(f"the frame begins with offset {header.base_offset}, {self.next_offset} was expected")
        return header

    def _doubt(
        self,
        buffer: memoryview,
        position: int,
        at_end: bool,
        reason: str,
        *,
        behind: int | None = None,
        size_bytes: int | None = None,
    ) -> None:
        """Something is wrong at ``position``; a sound frame of an offset above ``behind`` would prove damage.

        ``size_bytes`` is that of the frame if its header is sound: what lies in it proves nothing, as records may be
        frames.
        """
        self._behind = self.next_offset if behind is None else behind
        at = self._start + position
        self._damage = Corrupt(f"{self._file.path} is damaged at byte {at}, offset {self.next_offset}: {reason}")
        self._lost = LostBlocks(at, None if size_bytes is None else at + size_bytes)
        self._proof_from = at + (size_bytes or 1)
        self._start = at
        self._look_behind_damage(buffer[position:], at_end)

    def _look_behind_damage(self, buffer: memoryview, at_end: bool) -> None:
        """A torn tail if a block was lost; else damage if a sound header of a higher offset follows."""
        text = bytes(buffer)
        proof = self._proof_in(text)
        until = self._start + (len(text) if proof is None else proof)
        if self._lost.found_in(text, self._start, until, is_last=at_end or proof is not None):
            self._damage_proven = False
            self._tear(f"{self._damage}; a block of it never reached the disk")
            return
        if proof is not None or (at_end and self._torn_needs_proof):
            self._damage_proven = True
            return
        if at_end:
            self._tear(str(self._damage))
            return
        keep = HEADER_BYTES - 1
        if self._lost.next is not None:
            keep = max(keep, self._start + len(text) - self._lost.next)
        keep = min(len(text), keep)
        self._start += len(text) - keep
        self._needed_bytes = keep + self._read_bytes

    def _proof_in(self, text: bytes) -> int | None:
        """Where a sound header of a higher offset lies, if there is one."""
        found = text.find(MAGIC, max(0, self._proof_from - self._start))
        while found >= 0:
            try:
                if decode_header(text[found : found + HEADER_BYTES]).base_offset > self._behind:
                    return found
            except (Corrupt, Unsupported, InvalidArgument):
                pass  # records may hold the magic, too
            found = text.find(MAGIC, found + 1)
        return None

    def _tear(self, reason: str, *, restore: bool = False) -> FrameRun:
        if restore:
            self.next_offset = self._jumped_base
        self.torn = reason
        self._done = True
        return FrameRun(memoryview(b""), ())


def _reason(error: Corrupt | Unsupported) -> str:
    """The codec's sentence without its position, which counts from the slice it was given."""
    text = str(error)
    return text.partition(": ")[2] or text


def check_joins(file: SegmentFile, found: LogFrame, position: int) -> None:
    """Make sure that a frame does not straddle ``position``, where the frames of another file ended.

    Raises:
        Corrupt: it does. Files that overlap hold identical frames, so one of the two is not what was written.
    """
    header = found.frame.header
    if header.base_offset < position < header.end_offset:
        raise Corrupt(
            f"{file.path} at byte {found.position}: the frame of offsets [{header.base_offset}, {header.end_offset}) "
            f"straddles offset {position}, where another log of the segment has the end of a frame; the two disagree"
        )
