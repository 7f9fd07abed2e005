"""Format of the frame: one record batch on the wire and in log files.

A frame is a fixed 144-byte little-endian header, followed by the payload. The broker reads the header, writes
``base_offset`` into it, and passes the payload on untouched. Both parts carry an XXH3-64 checksum. The header's
checksum includes the base offset, so :func:`stamp` recomputes it.
"""

import struct
from collections.abc import Iterator
from typing import NamedTuple

from xxhash import xxh3_64_intdigest

from seaweedmq.errors import Corrupt, Unsupported
from seaweedmq.model.messages.frames import SMALL_MESSAGE_BYTES, Frames
from seaweedmq.model.ring import HISTOGRAM_BUCKETS

MAGIC = b"SWMF"
VERSION = 1
HEADER_BYTES = 144
PAYLOAD_BYTES_MAX = 2**32 - 1
RECORDS_MAX = 1_048_576
"""Maximum number of records in one frame. A column of booleans has 8 records per byte, but every record costs its
reader 20 bytes of offset, segment and timestamp. Without this bound a 16 MiB frame could take 2.7 GB to convert."""

ENCODING_ARROW = 1
"""Encoding of all frames that SeaweedMQ builds from records."""
ENCODING_KAFKA = 2
"""Encoding of batches of Kafka clients, as received."""

FLAG_KEY = 1
FLAG_TIMESTAMP = 2
FLAG_HEADERS = 4
COLUMN_FLAGS = FLAG_KEY | FLAG_TIMESTAMP | FLAG_HEADERS
"""Low byte of the flags: optional columns that are present. The high one: schema version 0 plain, 1 the topic's."""
FLAG_REFERENCE = 8
"""Flag of a frame with the column ``_reference``, in plain topics only: some of its records have their payload beside
the topic. Earlier releases reject it."""
SCHEMA_VERSION_SHIFT = 8

_HEADER = struct.Struct("<4sBBHIIQqqQQIHH16IQQ")
_BASE_OFFSET_AT = 128
_CHECKSUM_AT = 136
_U64 = struct.Struct("<Q")

assert _HEADER.size == HEADER_BYTES
assert HISTOGRAM_BUCKETS == 16


class Truncated(Corrupt):
    """An end of data inside an object: a torn tail, or more is still to be read."""


class FrameHeader(NamedTuple):
    """The fields of a header.

    A named tuple, because the hot path creates one per frame and a frozen dataclass takes 4 times as long. Change
    fields with ``_replace``.
    """

    encoding: int
    """Encoding of the payload, a key of ``payload.batch.ENCODINGS``."""
    flags: int
    record_count: int
    payload_length: int
    """Length of the payload in bytes."""
    payload_checksum: int
    """XXH3-64 of the payload, seed 0."""
    timestamp_min: int
    """Lowest timestamp in microseconds since 1970 UTC."""
    timestamp_max: int
    producer_id: int
    first_sequence: int
    """Producer's sequence of the first record; sequences count records."""
    producer_epoch: int
    slot_min: int
    """Lowest key slot, inclusive."""
    slot_max: int
    """Highest key slot, inclusive."""
    histogram: tuple[int, ...]
    """Records per sixteenth of the segment's slot range."""
    base_offset: int = 0
    """Offset of the first record; 0 until the broker stamps it."""

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""
        return self.base_offset + self.record_count

    @property
    def schema_version(self) -> int:
        """The schema version: 0 is plain, with ``_value``; 1 has the topic schema's columns in its place."""
        return self.flags >> SCHEMA_VERSION_SHIFT

    @property
    def frame_bytes(self) -> int:
        """The bytes of header and payload."""
        return HEADER_BYTES + self.payload_length


class Frame(NamedTuple):
    """A decoded header with the two parts of its frame, which are bytes or views of the received ones."""

    header: FrameHeader
    header_bytes: Frames
    payload: Frames


def encode_header(header: FrameHeader) -> bytes:
    """Return the 144 bytes of a header, with its checksum; struct.error, a caller's bug, if a field is too wide."""
    unsigned = _HEADER.pack(MAGIC, VERSION, *header[:12], *header.histogram, header.base_offset, 0)[:_CHECKSUM_AT]
    return unsigned + _U64.pack(xxh3_64_intdigest(unsigned))


def decode_header(data: Frames, position: int = 0) -> FrameHeader:
    """Read the header at ``position`` and verify its checksum; ignores the payload.

    Raises:
        Truncated: If fewer than 144 bytes are left.
        Corrupt: If the magic or the checksum is wrong.
        Unsupported: If this build does not know the format version. ``payload.batch`` checks the encoding.
    """
    if len(data) - position < HEADER_BYTES or position < 0:
        raise Truncated(
            f"frame at byte {position}: {len(data) - position} bytes are left where a header takes {HEADER_BYTES}; "
            "the rest is missing"
        )
    fields = _HEADER.unpack_from(data, position)
    if fields[0] != MAGIC:
        raise Corrupt(f"frame at byte {position}: begins with {fields[0]!r} instead of {MAGIC!r}; not a frame")
    if fields[1] != VERSION:
        as_supported = bytearray(data[position : position + _CHECKSUM_AT])
        as_supported[len(MAGIC)] = VERSION
        if xxh3_64_intdigest(as_supported) == fields[31]:
            raise Corrupt(
                f"frame at byte {position}: has format version {fields[1]}, but the checksum of version {VERSION}; "
                "the header was damaged, send or fetch it again"
            )
        raise Unsupported(
            f"frame at byte {position}: format version {fields[1]}, this build reads {VERSION}; upgrade the older side"
        )
    with memoryview(data) as view, view[position : position + _CHECKSUM_AT] as covered:
        checksum = xxh3_64_intdigest(covered)
    if checksum != fields[31]:
        raise Corrupt(
            f"frame at byte {position}: header checksum {checksum:016x} instead of {fields[31]:016x}; "
            "the header was damaged, send or fetch it again"
        )
    return FrameHeader._make((*fields[2:14], fields[14:30], fields[30]))


def stamp(header_bytes: bytes | memoryview, base_offset: int) -> bytes:
    """Return the header with ``base_offset`` set and the checksum recomputed: the only change a broker makes."""
    unsigned = bytes(header_bytes[:_BASE_OFFSET_AT]) + _U64.pack(base_offset)
    return unsigned + _U64.pack(xxh3_64_intdigest(unsigned))


def split_frames(data: Frames, *, verify: bool = True) -> Iterator[Frame]:
    """Yield the contiguous frames in ``data`` without copying, including those before a bad one.

    Args:
        data: One or more whole frames; the views keep it alive.
        verify: Whether to check the payload checksums; required for bytes of a client, a peer or a disk.

    Raises:
        Truncated: If the last frame is not whole.
        Corrupt: If a magic or a checksum is wrong.
        Unsupported: If a format version is unknown, as :func:`decode_header`.
    """
    view = memoryview(data)
    position, total = 0, len(view)
    while position < total:
        header = decode_header(view, position)
        start = position + HEADER_BYTES
        end = start + header.payload_length
        if end > total:
            raise Truncated(
                f"frame at byte {position}: payload of {header.payload_length} bytes ends {end - total} bytes beyond "
                "the data; the rest is missing"
            )
        payload = view[start:end]
        if verify:
            checksum = xxh3_64_intdigest(payload)
            if checksum != header.payload_checksum:
                raise Corrupt(
                    f"frame at byte {position}: payload checksum {checksum:016x} instead of "
                    f"{header.payload_checksum:016x}; the payload was damaged, send or fetch it again"
                )
        yield Frame(header, view[position:start], payload)
        position = end


def split_payload(payload: Frames, piece_bytes: int) -> Iterator[Frames]:
    """Split the payload of a frame that is too large for one message.

    The first piece is small: it fills the window of a channel, so that no more of a frame waits at a broker before
    there is memory for all of it. The others have ``piece_bytes``, the last one the rest.
    """
    view = memoryview(payload)
    first = min(piece_bytes, SMALL_MESSAGE_BYTES)
    yield view[:first]
    for start in range(first, len(view), piece_bytes):
        yield view[start : start + piece_bytes]
