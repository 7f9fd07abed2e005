"""Scanner of a log file, without IO: it requests byte ranges and returns the verified frames in them.

::

    while (wanted := scanner.wants()) is not None:
        run = scanner.feed(read(*wanted))

A killed writer leaves a torn tail: bytes at the end that are not a whole frame. A lost machine may lose blocks that
were not flushed and keep later ones (``lost_blocks``): that is also a torn tail, with any bytes after it. Damage is
distinguished by a sound frame of a higher offset after it, without a lost block in between.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import HEADER_BYTES, MAGIC, Frame, FrameHeader, Truncated, decode_header
from seaweedmq.codec.logfile import LogPreamble, decode_preamble
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported, fresh
from seaweedmq.model.files import SegmentFile
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.topic import Topic
from seaweedmq.ports import BlockingInput
from seaweedmq.storage.logs.log_index import Mark
from seaweedmq.storage.logs.lost_blocks import LostBlocks

READ_BYTES = 4 * 1024 * 1024
_SEEN_BYTES = 16
"""Last bytes of a skipped frame that prove its presence; a multiple of 8 keeps payloads aligned."""


CHUNKS_AT_ONCE: Final = 4
"""Chunks made from a table per thread call: a call costs as much as a tenth of a frame of 1 MiB."""


class Chunk(NamedTuple):
    """A sequence of frames back to back, of a log file or a table, and the offset after the last of them."""

    end_offset: int
    data: Frames


class LogFrame(NamedTuple):
    """A verified frame and its position."""

    frame: Frame
    start: int
    """Start of its header in ``FrameRun.data``."""
    position: int
    """Position of its header in the file."""

    @property
    def end(self) -> int:
        """End of its payload in ``FrameRun.data``."""
        return self.start + self.frame.header.frame_bytes


class FrameRun(NamedTuple):
    """The frames of one read, back to back in ``data`` from the first one's start to the last one's end."""

    data: memoryview
    frames: Sequence[LogFrame]


class LogScanner:
    """A scanner of one log file; its memory is one read, or the largest frame if that is larger.

    Invariant: every returned frame is whole, passes both checksums, and begins at the end of the previous one.
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
        """Create a scanner from a mark of the file; it reads only the headers of frames that end by ``skip_below``."""
        self._topic = topic
        self._file = file
        self._skip_below = skip_below
        self._read_bytes = read_bytes
        self._start = 0 if begin is None else begin.position
        """Position in the file of the first byte that is not decoded.

        The bytes read after it are read again: from the page cache that costs less than joining them with the next
        read.
        """
        self._needed_bytes = 0
        """Bytes needed from there to decode the next frame."""
        self._jumped = 0
        """Size of the skipped frame whose last bytes are not read yet; 0 if there is none."""
        self._jumped_base = file.base_offset
        """Base offset of that frame."""
        self._damage: Corrupt | None = None
        """Error after the last sound frame: a torn tail, unless a sound frame follows."""
        self._damage_proven = False
        self._lost = LostBlocks(0, 0)
        """Search for a lost block, which makes it a torn tail in any case."""
        self._proof_from = 0
        """Position from which a sound frame proves damage."""
        self._torn_needs_proof = False
        """Whether it is a torn tail only if a block was lost."""
        self._behind = file.base_offset
        self._done = False
        self.preamble: LogPreamble | None = None
        """Preamble; None until it is read, and if the scan began after it."""
        self._preamble_due = begin is None
        self.mark = begin
        """Last mark at which another scan of the file may begin."""
        self.next_offset = file.base_offset if begin is None else begin.offset
        """End offset of the last sound frame."""
        self.torn: str | None = None
        """Reason why the tail is not a frame, once done; None if the file ends with a whole frame."""
        self.foreign = False
        """Whether the file belongs to an earlier topic of the same name and is ignored."""

    def wants(self) -> tuple[int, int] | None:
        """Return the position and length to read next, None when done; raises Corrupt if sound frames follow damage."""
        if self._damage is not None and self._damage_proven:
            raise fresh(self._damage)
        if self._done:
            return None
        seen = _SEEN_BYTES if self._jumped else 0
        # Up to a multiple of the read length: the system would fetch a page twice that two reads share.
        unread = -(self._start + self._needed_bytes) % self._read_bytes
        return self._start - seen, seen + max(self._read_bytes, self._needed_bytes + unread)

    def runs(self, source: BlockingInput) -> Iterator[FrameRun]:
        """Feed the file from an open source, without data appended since it was listed; yield what each read holds."""
        while (wanted := self.wants()) is not None:
            position, length = wanted
            source.seek(position)
            yield self.feed(source.read(max(0, min(length, self._file.size_bytes - position))))

    def stop(self) -> None:
        """End the scan; damage after the frames returned so far is not reported."""
        self._damage = None
        self._done = True

    def feed(self, data: Frames) -> FrameRun:
        """Process the bytes read for :meth:`wants`; fewer bytes than wanted mean the end of the file."""
        wanted = self.wants()
        assert wanted is not None, f"{self._file.path}: fed after the end"
        at_end = len(data) < wanted[1]
        buffer = memoryview(data)
        if self._jumped:
            if len(data) < _SEEN_BYTES:
                return self._stop_torn(f"the last frame of {self._jumped} bytes is incomplete", restore=True)
            buffer = buffer[_SEEN_BYTES:]
            self._jumped = 0
        self._needed_bytes = 0
        if self._damage is not None:
            self._search_behind_damage(buffer, at_end)
            return FrameRun(buffer, ())
        position = self._read_preamble(buffer, at_end) if self._preamble_due else 0
        if position is None:
            return FrameRun(buffer, ())
        return self._read_frames(buffer, position, at_end)

    def _read_preamble(self, buffer: memoryview, at_end: bool) -> int | None:
        """Read the preamble and return its length; None if no frames can be read, yet or at all."""
        file = self._file
        try:
            self.preamble, used = decode_preamble(buffer)
        except Truncated as e:
            if at_end:
                # A damaged length may also point beyond the end of the file: then frames follow.
                self._doubt(buffer, 0, at_end, str(e), behind=file.base_offset - 1)
                return None
            self._needed_bytes = 2 * len(buffer)
            return None
        except Corrupt as e:
            # The checksum is verified only on a complete preamble.
            self._torn_needs_proof = True
            self._doubt(buffer, 0, at_end, str(e), behind=file.base_offset - 1)
            if self._damage_proven:
                raise Corrupt(f"{file.path} cannot be read: {e}") from e
            return None
        except Unsupported as e:
            raise Unsupported(f"{file.path}: {e}") from e
        p = self.preamble
        if p.topic == file.topic and p.topic_uid != self._topic.uid:
            self.foreign = self._done = True
            return None
        if (p.topic, p.segment, p.base_offset, p.writer) != (file.topic, file.segment, file.base_offset, file.writer):
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
                    self._stop_torn(f"the frame at byte {self._start + position} ends beyond the file")
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
                    self._stop_torn(_reason(e))
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
        """Note an error at ``position``; a sound frame of an offset above ``behind`` would prove damage.

        ``size_bytes`` is the size of the bad frame if its header is sound: its content proves nothing, since records
        may contain frames.
        """
        self._behind = self.next_offset if behind is None else behind
        at = self._start + position
        self._damage = Corrupt(f"{self._file.path} is damaged at byte {at}, offset {self.next_offset}: {reason}")
        self._lost = LostBlocks(at, None if size_bytes is None else at + size_bytes)
        self._proof_from = at + (size_bytes or 1)
        self._start = at
        self._search_behind_damage(buffer[position:], at_end)

    def _search_behind_damage(self, buffer: memoryview, at_end: bool) -> None:
        """Decide on a torn tail if a block was lost, otherwise on damage if a later sound header follows."""
        text = bytes(buffer)
        proof = self._proof_in(text)
        until = self._start + (len(text) if proof is None else proof)
        if self._lost.found_in(text, self._start, until, is_last=at_end or proof is not None):
            self._damage_proven = False
            self._stop_torn(f"{self._damage}; a block of it never reached the disk")
            return
        if proof is not None or (at_end and self._torn_needs_proof):
            self._damage_proven = True
            return
        if at_end:
            self._stop_torn(str(self._damage))
            return
        keep = HEADER_BYTES - 1
        if self._lost.next is not None:
            keep = max(keep, self._start + len(text) - self._lost.next)
        keep = min(len(text), keep)
        self._start += len(text) - keep
        self._needed_bytes = keep + self._read_bytes

    def _proof_in(self, text: bytes) -> int | None:
        """Return the position of a sound header of a higher offset, or None."""
        found = text.find(MAGIC, max(0, self._proof_from - self._start))
        while found >= 0:
            try:
                if decode_header(text[found : found + HEADER_BYTES]).base_offset > self._behind:
                    return found
            except (Corrupt, Unsupported, InvalidArgument):
                pass  # records may contain the magic
            found = text.find(MAGIC, found + 1)
        return None

    def _stop_torn(self, reason: str, *, restore: bool = False) -> FrameRun:
        if restore:
            self.next_offset = self._jumped_base
        self.torn = reason
        self._done = True
        return FrameRun(memoryview(b""), ())


def _reason(error: Corrupt | Unsupported) -> str:
    """Return the codec's message without its position, which is relative to the decoded slice."""
    text = str(error)
    return text.partition(": ")[2] or text


def check_joins(file: SegmentFile, found: LogFrame, position: int) -> None:
    """Raise Corrupt if a frame straddles ``position``, where those of another file end: the two disagree."""
    header = found.frame.header
    if header.base_offset < position < header.end_offset:
        raise Corrupt(
            f"{file.path} at byte {found.position}: the frame of offsets [{header.base_offset}, {header.end_offset}) "
            f"straddles offset {position}, where another log of the segment has the end of a frame; the two disagree"
        )
