"""The frame: one record batch on the wire and in log files. A fixed 144-byte little-endian header, then the payload.

The broker reads the header, writes ``base_offset`` into it and passes the payload on untouched. Both parts carry an
XXH3-64 checksum; the header's covers the base offset too, so :func:`stamp` recomputes it.
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
"""In one frame. A column of booleans has 8 records a byte, but every record costs its reader 20 bytes of offset,
segment and timestamp: without this bound a 16 MiB frame could take 2.7 GB to convert."""

ENCODING_ARROW = 1
"""Of all frames that are made of records here."""
ENCODING_KAFKA = 2
"""Of batches of Kafka's clients, as they came."""

FLAG_KEY = 1
FLAG_TIMESTAMP = 2
FLAG_HEADERS = 4
COLUMN_FLAGS = FLAG_KEY | FLAG_TIMESTAMP | FLAG_HEADERS
"""Low byte of the flags: which optional columns are present. High byte: schema version, 0 plain, 1 the topic's."""
SCHEMA_VERSION_SHIFT = 8

_HEADER = struct.Struct("<4sBBHIIQqqQQIHH16IQQ")
_BASE_OFFSET_AT = 128
_CHECKSUM_AT = 136
_U64 = struct.Struct("<Q")

assert _HEADER.size == HEADER_BYTES
assert HISTOGRAM_BUCKETS == 16


class Truncated(Corrupt):
    """The bytes end in the middle of something: a torn tail, or more is still to be read."""


class FrameHeader(NamedTuple):
    """What a header says. A named tuple because the hot path makes one a frame (a frozen dataclass takes 4 x as long);
    change fields with ``_replace``.
    """

    encoding: int
    """Of the payload: a key of ``payload.batch.ENCODINGS``."""
    flags: int
    record_count: int
    payload_length: int
    """Bytes."""
    payload_checksum: int
    """XXH3-64, seed 0."""
    timestamp_min: int
    """Microseconds since 1970 UTC."""
    timestamp_max: int
    producer_id: int
    first_sequence: int
    """The producer's sequence of the first record. Sequences count records."""
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
        """Offset after the last record."""
        return self.base_offset + self.record_count

    @property
    def schema_version(self) -> int:
        """0: plain, with ``_value``; 1: the topic schema's columns in its place."""
        return self.flags >> SCHEMA_VERSION_SHIFT

    @property
    def frame_bytes(self) -> int:
        """Header and payload."""
        return HEADER_BYTES + self.payload_length


class Frame(NamedTuple):
    """A frame in place: both parts are views of the bytes it came in."""

    header: FrameHeader
    header_bytes: bytes | memoryview
    payload: memoryview


def encode_header(header: FrameHeader) -> bytes:
    """The 144 bytes of a header, with its checksum.

    Raises:
        struct.error: a field does not fit its width, which is a bug of the caller.
    """
    unsigned = _HEADER.pack(MAGIC, VERSION, *header[:12], *header.histogram, header.base_offset, 0)[:_CHECKSUM_AT]
    return unsigned + _U64.pack(xxh3_64_intdigest(unsigned))


def decode_header(data: Frames, position: int = 0) -> FrameHeader:
    """Read the header that begins at ``position``; its checksum holds, its payload is not looked at.

    Raises:
        Truncated: fewer than 144 bytes are left.
        Corrupt: wrong magic or checksum.
        Unsupported: a format version this build does not know. (Encodings are the business of ``payload.batch``.)
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
        as_ours = bytearray(data[position : position + _CHECKSUM_AT])
        as_ours[len(MAGIC)] = VERSION
        if xxh3_64_intdigest(as_ours) == fields[31]:
            raise Corrupt(
                f"frame at byte {position}: says format version {fields[1]}, but is one of version {VERSION}; "
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
    """The same header with ``base_offset`` set and the checksum recomputed: the only change a broker makes."""
    unsigned = bytes(header_bytes[:_BASE_OFFSET_AT]) + _U64.pack(base_offset)
    return unsigned + _U64.pack(xxh3_64_intdigest(unsigned))


def split_frames(data: Frames, *, verify: bool = True) -> Iterator[Frame]:
    """The frames that lie back to back in ``data``, without copying; frames before a bad one are still given.

    Args:
        data: one or more whole frames. The views keep it alive.
        verify: check the payload checksums too. True wherever the bytes come from a client, a peer or a disk.

    Raises:
        Truncated: the last frame is not whole.
        Corrupt: wrong magic or checksum.
        Unsupported: as :func:`decode_header`.
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
