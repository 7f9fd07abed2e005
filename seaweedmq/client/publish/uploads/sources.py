"""Payloads to be uploaded: files, streams and values. Their calls block and run in threads."""

import hashlib
import mimetypes
import os
import platform
import random
import stat
import threading
from pathlib import Path
from typing import BinaryIO, Protocol

from seaweedmq.errors import Closed, InvalidArgument
from seaweedmq.model.config import MIB
from seaweedmq.model.messages.blobs import PART_BYTES_MAX

STREAM_PART_BYTES = 16 * MIB
"""Size of the parts of a stream, which cannot be read twice: the current part stays in memory until it is stored."""
UNKNOWN_TYPE = "application/octet-stream"
CONTENT_TYPE_BYTES_MAX = 1024
"""Limit of a media type, which is a part of the record."""


def new_upload_id(rng: random.Random) -> str:
    """Return a random id of an upload."""
    return f"{rng.getrandbits(128):032x}"


class Source(Protocol):
    """A payload. One thread at a time calls it."""

    upload_id: str
    """Id of the upload, 32 hexadecimal digits. Equal ids resume each other's uploads."""
    content_type: str
    size_bytes: int
    """Size of the payload; 0 if it is not known yet."""
    part_bytes: int
    """Size of each part but the last."""
    may_wait: bool
    """Whether a read may wait for the producer of the payload, for any time."""

    @property
    def memory_bytes(self) -> int:
        """Bytes that the payload takes in memory before its upload begins."""

    def read(self, position: int, length: int) -> bytes:
        """Return up to ``length`` bytes, fewer only at the end.

        It reads onward, and again from the begin of the part that is not stored yet. Raises InvalidArgument if the
        payload cannot be read, or has changed.
        """

    def stored(self, position: int) -> None:
        """Note that everything below a position is stored, and not read again."""

    def check(self) -> None:
        """Raise InvalidArgument if the payload, read to its end, has changed meanwhile."""

    def close(self) -> None:
        """Release what the payload holds."""


class FileSource:
    """A file.

    The id derives from what identifies its content on this machine: path, inode, size, and times of the last change. So
    an upload resumes after the process was killed, without a note anywhere. The broker's digests of the parts that it
    finds are compared with those of the file, so a wrong guess costs time, not content.
    """

    part_bytes = PART_BYTES_MAX
    memory_bytes = 0
    may_wait = False

    def __init__(self, path: str | os.PathLike[str], content_type: str = "") -> None:
        """Check the file, without keeping it open.

        Raises:
            InvalidArgument: If the path is not a regular file that can be read, or the content type is not text.
        """
        self._path = Path(path).absolute()
        fd = self._open()
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        self._fd = -1
        self._is_closed = False
        self._lock = threading.Lock()
        """Held during each call: the thread of a cancelled caller may still read when the file is closed."""
        self._state = _state_of(found)
        self.size_bytes = found.st_size
        identity = (platform.node(), str(self._path), found.st_dev, *self._state)
        self.upload_id = hashlib.sha256(repr(identity).encode()).hexdigest()[:32]
        guessed, compression = mimetypes.guess_type(self._path.name)
        self.content_type = _checked_type(content_type) or (None if compression else guessed) or UNKNOWN_TYPE

    def read(self, position: int, length: int) -> bytes:
        """Read from the file, which the first call opens."""
        try:
            with self._lock:
                if self._is_closed:
                    raise Closed(f"the upload of {self._path} has ended")
                if self._fd < 0:
                    self._fd = self._open()
                    self.check()
                return self._read(position, length)
        finally:
            if self._is_closed:
                self.close()

    def _read(self, position: int, length: int) -> bytes:
        data = bytearray()
        wanted = min(length, self.size_bytes - position)
        while len(data) < wanted:
            try:
                piece = os.pread(self._fd, wanted - len(data), position + len(data))
            except OSError as error:
                raise _unreadable(self._path, error) from error
            if not piece:
                raise self._changed(os.fstat(self._fd).st_size)
            data += piece
        return bytes(data)

    def stored(self, position: int) -> None:
        """Do nothing: a file is read again at will."""

    def check(self) -> None:
        """Compare size, times and inode with those at ``send_file``."""
        found = os.fstat(self._fd)
        if _state_of(found) != self._state:
            raise self._changed(found.st_size)

    def close(self) -> None:
        """Close the file, or let a read do so that is under way: it may hang in a network file system."""
        self._is_closed = True
        if self._lock.acquire(blocking=False):
            try:
                if self._fd >= 0:
                    os.close(self._fd)
                    self._fd = -1
            finally:
                self._lock.release()

    def _open(self) -> int:
        try:
            # A pipe without a writer would block the open, and its content could be read only once.
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError) as error:  # ValueError: a null character.
            raise _unreadable(self._path, error) from error
        kind = os.fstat(fd).st_mode
        if not stat.S_ISREG(kind):
            os.close(fd)
            if stat.S_ISDIR(kind):
                raise InvalidArgument(f"{self._path} is a directory: send its files one by one, or an archive of them")
            raise InvalidArgument(f"{self._path} is not a regular file: open it, and use send_stream")
        return fd

    def _changed(self, size_bytes: int) -> InvalidArgument:
        how = "changed"
        if size_bytes != self.size_bytes:
            verb = "grew" if size_bytes > self.size_bytes else "shrank"
            how = f"{verb} from {self.size_bytes} to {size_bytes} bytes"
        return InvalidArgument(f"{self._path} {how} while it was sent: send it again once it is complete")


class StreamSource:
    """An open binary file, pipe or other stream, which is read once. Its upload does not survive the process."""

    size_bytes = 0
    part_bytes = STREAM_PART_BYTES
    memory_bytes = 0
    may_wait = True

    def __init__(self, stream: BinaryIO, upload_id: str, content_type: str = "") -> None:
        """Take the stream; InvalidArgument if it lacks ``read``, is opened as text, or its content type is not text."""
        if not callable(getattr(stream, "read", None)):
            raise InvalidArgument(f"send_stream needs an open binary file, not {type(stream).__name__}: open it")
        if hasattr(stream, "encoding"):
            raise InvalidArgument("send_stream needs a binary file, this one is opened as text: open it with mode 'rb'")
        self._stream = stream
        self.upload_id = upload_id
        self.content_type = _checked_type(content_type) or UNKNOWN_TYPE
        self._kept = bytearray()
        """Bytes read from ``_kept_from`` on."""
        self._kept_from = 0
        self._is_over = False

    def read(self, position: int, length: int) -> bytes:
        """Return bytes that are kept, or read from the stream, which may block."""
        at = position - self._kept_from
        if at < 0:
            raise InvalidArgument("the stored parts of a stream are gone, and it cannot be read again: send it again")
        while len(self._kept) < at + length and not self._is_over:
            try:
                piece = self._stream.read(at + length - len(self._kept))
            except (OSError, ValueError) as error:  # ValueError: it was closed.
                raise InvalidArgument(f"the stream cannot be read, {error}: keep it open until it is sent") from error
            except Exception as error:  # Streams are code of the caller: a cut gzip file raises EOFError.
                raise InvalidArgument(f"the stream cannot be read, {error!r:.300}: repair it, then send it") from error
            if not isinstance(piece, bytes | bytearray | memoryview):
                raise InvalidArgument(
                    f"the stream returned {type(piece).__name__}, not bytes: send a blocking, binary one"
                )
            self._is_over = not piece
            self._kept += piece
        return bytes(memoryview(self._kept)[at : at + length])

    def stored(self, position: int) -> None:
        """Drop what is stored."""
        if position > self._kept_from:
            del self._kept[: position - self._kept_from]
            self._kept_from = position

    def check(self) -> None:
        """Do nothing: a stream has no state to compare."""

    def close(self) -> None:
        """Drop what was read; the caller closes the stream."""
        self._kept = bytearray()


class ValueSource:
    """A value in memory."""

    part_bytes = PART_BYTES_MAX
    content_type = UNKNOWN_TYPE
    may_wait = False

    def __init__(self, value: bytes, upload_id: str) -> None:
        self._value = value
        self.upload_id = upload_id
        self.size_bytes = self.memory_bytes = len(value)

    def read(self, position: int, length: int) -> bytes:
        """Return a part of the value."""
        return self._value[position : position + length]

    def stored(self, position: int) -> None:
        """Do nothing: the value stays."""

    def check(self) -> None:
        """Do nothing: bytes do not change."""

    def close(self) -> None:
        """Drop the value."""
        self._value = b""


def _state_of(found: os.stat_result) -> tuple[int, int, int, int]:
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _checked_type(content_type: str) -> str:
    if not isinstance(content_type, str):
        raise InvalidArgument(f"the content type is {type(content_type).__name__}, it must be str: convert it")
    try:
        size_bytes = len(content_type.encode())
    except UnicodeEncodeError:
        raise InvalidArgument("the content type is not valid Unicode: UTF-8 cannot encode it") from None
    if size_bytes > CONTENT_TYPE_BYTES_MAX:
        raise InvalidArgument(
            f"the content type has {size_bytes} bytes, above the limit of {CONTENT_TYPE_BYTES_MAX}: use a media type"
        )
    return content_type


def _unreadable(path: Path, error: OSError | ValueError) -> InvalidArgument:
    why = getattr(error, "strerror", None) or error
    return InvalidArgument(f"{path} cannot be read, {why}: check the path and its permissions")
