"""Reader of the frames of a staged batch, in the order of its manifest. Blocking."""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from xxhash import xxh3_64_intdigest

from seaweedmq.codec.frame import HEADER_BYTES, FrameHeader, decode_header
from seaweedmq.errors import Corrupt
from seaweedmq.model.messages.frames import Frames
from seaweedmq.model.staged import StagedFile
from seaweedmq.storage.faults import storage_failed
from seaweedmq.storage.place import Place, RangeReader

OPEN_FILES_MAX = 64
"""Limit of open staged files per batch: its segments read them concurrently."""


class StagedFrame(NamedTuple):
    """A frame's position in the files of a batch."""

    file: int
    """Number of the file in the manifest."""
    position: int
    """Position of the frame's header in the file, in bytes."""
    header: FrameHeader


class _Index(NamedTuple):
    """An index of the frames of a batch in order, one row per frame."""

    files: npt.NDArray[np.int64]
    positions: npt.NDArray[np.int64]
    slot_mins: npt.NDArray[np.int64]
    slot_maxs: npt.NDArray[np.int64]


class StagedFrames:
    """The frames of a manifest, in order, for one thread; 32 bytes per frame stay, since segments ask repeatedly."""

    def __init__(self, place: Place, folder: str, files: Sequence[StagedFile]) -> None:
        self._place = place
        self._folder = folder
        self._files = files
        self._open: OrderedDict[int, RangeReader] = OrderedDict()
        """Number of a file -> its reader, ordered by last use."""

    def headers(self, lo: int = 0, hi: int = 1 << 16) -> Iterator[StagedFrame]:
        """Yield the frames that overlap slots ``[lo, hi)``, without payloads; raises Corrupt if files differ."""
        index = self._index
        for row in np.flatnonzero((index.slot_mins < hi) & (index.slot_maxs >= lo)):
            number, position = int(index.files[row]), int(index.positions[row])
            yield StagedFrame(number, position, self._header(number, position))

    def payload(self, frame: StagedFrame) -> bytes:
        """Return the verified payload of a frame; the errors are those of :meth:`headers`."""
        header = frame.header
        data = self._read(frame.file, frame.position + HEADER_BYTES, header.payload_length)
        if len(data) != header.payload_length:
            raise Corrupt(f"{self._where(frame.file)} ends in the middle of a frame")
        # Verified here: a divided frame gets its own checksum, by which brokers would accept damaged data.
        if xxh3_64_intdigest(data) != header.payload_checksum:
            raise Corrupt(
                f"{self._where(frame.file)} is damaged after byte {frame.position}: restore it, "
                "or remove the folder and restart the query from the end of the topic"
            )
        return bytes(data)

    def close(self) -> None:
        """Close all files; a second call has no effect."""
        while self._open:
            self._open.popitem()[1].close()

    @cached_property
    def _index(self) -> _Index:
        rows: list[tuple[int, int, int, int]] = []
        for number, file in enumerate(self._files):
            position = 0
            while position < file.size_bytes:
                header = self._header(number, position)
                rows.append((number, position, header.slot_min, header.slot_max))
                position += header.frame_bytes
            if position != file.size_bytes:
                raise Corrupt(f"{self._where(number)} has frames up to byte {position} of {file.size_bytes}")
        return _Index(*np.array(rows, np.int64).reshape(len(rows), 4).T)

    def _header(self, number: int, position: int) -> FrameHeader:
        try:
            return decode_header(self._read(number, position, HEADER_BYTES))
        except Corrupt as error:
            raise Corrupt(f"{self._where(number)} at byte {position}: {error}") from error

    def _where(self, number: int) -> str:
        return self._place.where(f"{self._folder}/{self._files[number].name}")

    def _read(self, number: int, position: int, length: int) -> Frames:
        path = f"{self._folder}/{self._files[number].name}"
        try:
            if number not in self._open:
                if len(self._open) >= OPEN_FILES_MAX:
                    self._open.popitem(last=False)[1].close()
                self._open[number] = self._place.open_reader(path)
            self._open.move_to_end(number)
            return self._open[number].read_at(position, length)
        except FileNotFoundError:
            raise Corrupt(
                f"{self._place.where(path)} of the manifest is missing: restore it, or remove the folder and restart "
                "the query from the end of the topic"
            ) from None
        except OSError as error:
            raise storage_failed("read", self._place.where(path), error) from error
