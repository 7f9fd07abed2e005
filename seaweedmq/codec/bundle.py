"""Format of the entries in a broker's sequence on an object store: bundles of frames, and the fence that ends them.

An entry is a fixed 128-byte little-endian header, then the index, then frames back to back, as a log file has them. The
index has all that a recovery needs, so that a GET of the first bytes is enough. ``FORMATS.md`` has the tables. Header
and index carry an XXH3-64 checksum; each frame carries its own two.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xxhash import xxh3_64_intdigest

from seaweedmq.codec.bundle_index import IndexCounts, index_from_bytes, index_length, index_to_bytes
from seaweedmq.codec.frame import Frame, Truncated, split_frames
from seaweedmq.errors import Corrupt, InvalidArgument, Unsupported
from seaweedmq.model.bundle import (
    NONCE_BYTES,
    NUMBER_MAX,
    BundledFrame,
    BundleRun,
    BundleSection,
    EntryHeader,
    EntryIndex,
    EntryKind,
    SegmentTail,
)
from seaweedmq.model.messages.frames import Frames

MAGIC = b"SWMQBND1"
VERSION = 1
HEADER_BYTES = 128
INDEX_BYTES_MAX = 64 * 1024 * 1024
"""Maximum bytes of an index, which keep a damaged length from causing gigabytes to be read. A full checkpoint of 2,000
segments with 100,000 producers takes 3 MiB, and their last frames at most 0.4 MiB a segment."""

_HEADER = struct.Struct("<8sHBBIQQQ16sQQHHIIIQQ16sQ")
_VERSION_AT = 8
_CHECKSUM_AT = 120
_RESERVED = b"\0" * 16
_U64 = struct.Struct("<Q")

assert _HEADER.size == HEADER_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryPrefix:
    """A decoded header with the sizes of what follows it."""

    header: EntryHeader
    index_bytes: int
    payload_bytes: int
    counts: IndexCounts
    index_checksum: int

    @property
    def prefix_bytes(self) -> int:
        """Bytes of header and index: where the frames begin."""
        return HEADER_BYTES + self.index_bytes

    @property
    def object_bytes(self) -> int:
        """Bytes of the whole object."""
        return self.prefix_bytes + self.payload_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedBundle:
    """A bundle to be put."""

    buffers: tuple[Frames, ...]
    """Header with index, then the frames' own buffers in order."""
    index: EntryIndex
    """The index, whose runs have their positions."""


def encode_bundle(
    header: EntryHeader,
    runs: Sequence[tuple[BundleRun, Sequence[Frames]]],
    *,
    carried: Sequence[BundleSection] = (),
    tails: Sequence[SegmentTail] = (),
) -> EncodedBundle:
    """Encode a bundle, without a copy of its frames.

    Args:
        header: The bundle's identity; its kind is not ``FENCE``.
        runs: Each run, without its position, and the buffers of its frames; none for a reference.
        carried: Sections of earlier bundles, in a checkpoint, in ascending order.
        tails: Segments, in a checkpoint, or those whose runs do not continue earlier bundles.

    Raises:
        InvalidArgument: If a run has other bytes than its buffers, a number does not fit, or the index is too long.
    """
    if header.is_fence or (carried and not header.kind.is_checkpoint):
        raise InvalidArgument(f"entry {header.number} of kind {header.kind.name}: only a checkpoint carries sections")
    own = BundleSection(number=header.number, runs=tuple(run for run, _ in runs))
    sections = (own, *carried)
    position = HEADER_BYTES + index_length(sections, tails)
    start = position
    placed: list[BundleRun] = []
    buffers: list[Frames] = []
    for run, frames in runs:
        length = sum(len(buffer) for buffer in frames)
        if frames and length != run.length:
            raise InvalidArgument(f"run {run.key} from {run.base_offset}: {length} bytes instead of {run.length}")
        placed.append(replace(run, position=position if frames else 0))
        position += length
        buffers += frames
    sections = (BundleSection(number=header.number, runs=tuple(placed)), *carried)
    index = EntryIndex(header=header, sections=sections, tails=tuple(tails))
    content, counts = index_to_bytes(sections, tails)
    return EncodedBundle(buffers=(_prefix(header, content, counts, position - start), *buffers), index=index)


def encode_fence(header: EntryHeader, writer: str) -> bytes:
    """Return the bytes of a fence; ``writer`` is the id of the broker that puts it.

    Raises InvalidArgument if the header is not one of a fence.
    """
    if not header.is_fence:
        raise InvalidArgument(f"entry {header.number} of kind {header.kind.name}: not a fence")
    return _prefix(header, writer.encode(), IndexCounts(0, 0), 0)


def _prefix(header: EntryHeader, index: bytes, counts: IndexCounts, payload_bytes: int) -> bytes:
    if len(index) > INDEX_BYTES_MAX:
        raise InvalidArgument(
            f"entry {header.number}: index of {len(index)} bytes, at most {INDEX_BYTES_MAX}; remember fewer producers"
        )
    if not 0 <= header.number <= NUMBER_MAX or len(header.nonce) != NONCE_BYTES:
        raise InvalidArgument(f"entry {header.number}: use numbers up to {NUMBER_MAX} and {NONCE_BYTES} random bytes")
    try:
        unsigned = _HEADER.pack(
            MAGIC,
            VERSION,
            header.kind,
            0,
            len(index),
            header.number,
            header.floor,
            header.checkpoint,
            header.nonce,
            header.time_us,
            payload_bytes,
            header.checkpoint_every,
            0,
            counts.sections,
            counts.tails,
            0,
            xxh3_64_intdigest(index),
            header.done,
            _RESERVED,
            0,
        )[:_CHECKSUM_AT]
    except struct.error as error:
        raise InvalidArgument(f"entry {header.number}: a field does not fit its width ({error})") from error
    return unsigned + _U64.pack(xxh3_64_intdigest(unsigned)) + index


def decode_header(data: Frames, name: str) -> EntryPrefix:
    """Read the header of the entry with this object ``name``; ignores what follows it.

    Raises:
        Truncated: If there are fewer than 128 bytes.
        Corrupt: If the magic, the checksum or a field is wrong.
        Unsupported: If a later version wrote it.
    """
    if len(data) < HEADER_BYTES:
        if bytes(data[: len(MAGIC)]) != MAGIC[: len(data)]:
            raise _foreign(data, name)
        raise Truncated(
            f"{name} at byte {len(data)}: cut short, a header takes {HEADER_BYTES} bytes; restore the object"
        )
    fields = _HEADER.unpack_from(data)
    if fields[0] != MAGIC:
        raise _foreign(data, name)
    covered = bytearray(data[:_CHECKSUM_AT])
    checksum = xxh3_64_intdigest(covered)
    if fields[1] != VERSION:
        struct.pack_into("<H", covered, _VERSION_AT, VERSION)
        if xxh3_64_intdigest(covered) == fields[19]:
            raise Corrupt(
                f"{name} at byte {_VERSION_AT}: has format version {fields[1]}, but the checksum of version {VERSION}; "
                "the header was damaged, read or restore it"
            )
        raise Unsupported(
            f"{name} at byte {_VERSION_AT}: format version {fields[1]}, this build reads {VERSION}; upgrade this broker"
        )
    if checksum != fields[19]:
        raise Corrupt(
            f"{name} at byte {_CHECKSUM_AT}: header checksum {fields[19]:016x} instead of {checksum:016x}; "
            "the header was damaged, read or restore it"
        )
    return _checked_prefix(fields, name)


def _checked_prefix(fields: tuple[Any, ...], name: str) -> EntryPrefix:
    try:
        kind = EntryKind(fields[2])
    except ValueError as error:
        raise Corrupt(f"{name} at byte 10: {fields[2]} is not a kind of entry; another program wrote it") from error
    index_bytes, number, floor, checkpoint = fields[4:8]
    if index_bytes > INDEX_BYTES_MAX or number > NUMBER_MAX or fields[11] == 0:
        raise Corrupt(
            f"{name} at byte 12: index of {index_bytes} bytes, number {number}, checkpoint every {fields[11]}; at most "
            f"{INDEX_BYTES_MAX}, {NUMBER_MAX}, and at least 1: another program wrote it"
        )
    if kind is not EntryKind.FENCE and not (floor <= checkpoint <= number and floor <= fields[17] <= number):
        raise Corrupt(
            f"{name} at byte 24: floor {floor}, full checkpoint {checkpoint}, done {fields[17]} and number {number} "
            "must be in ascending order; another program wrote it"
        )
    return EntryPrefix(
        header=EntryHeader(
            kind=kind,
            number=number,
            floor=floor,
            done=fields[17],
            checkpoint=checkpoint,
            nonce=fields[8],
            time_us=fields[9],
            checkpoint_every=fields[11],
        ),
        index_bytes=index_bytes,
        payload_bytes=fields[10],
        counts=IndexCounts(fields[13], fields[14]),
        index_checksum=fields[16],
    )


def decode_entry(data: Frames, name: str, *, object_bytes: int | None = None) -> EntryIndex:
    """Read header and index of an entry from its first bytes, at least ``EntryPrefix.prefix_bytes``.

    Args:
        data: The beginning of the object, or all of it.
        name: Name of the object, for errors.
        object_bytes: Size of the object if it is known, so that missing frames are found without a read of them.

    Raises:
        Truncated: If the index is not whole, or the object is shorter than its header says.
        Corrupt: If magic, checksums or fields are wrong.
        Unsupported: If a later version wrote it.
    """
    prefix = decode_header(data, name)
    if object_bytes is not None and object_bytes != prefix.object_bytes:
        kind = Truncated if object_bytes < prefix.object_bytes else Corrupt
        raise kind(
            f"{name} at byte {object_bytes}: the object ends here instead of at byte {prefix.object_bytes}, as its "
            "header says; it was cut short or written by another program, restore it"
        )
    if len(data) < prefix.prefix_bytes:
        raise Truncated(
            f"{name} at byte {len(data)}: cut short, header and index take {prefix.prefix_bytes} bytes; "
            "read more of it, or restore the object"
        )
    with memoryview(data) as view, view[HEADER_BYTES : prefix.prefix_bytes] as covered:
        content = bytes(covered)
    checksum = xxh3_64_intdigest(content)
    if checksum != prefix.index_checksum:
        raise Corrupt(
            f"{name} at byte {HEADER_BYTES}: index checksum {checksum:016x} instead of {prefix.index_checksum:016x}; "
            "the index was damaged, read or restore it"
        )
    if prefix.header.is_fence:
        return EntryIndex(header=prefix.header, writer=_writer(content, name))
    sections, tails = index_from_bytes(content, prefix.counts, f"{name} at byte {HEADER_BYTES}")
    index = EntryIndex(header=prefix.header, sections=sections, tails=tails)
    _check_layout(index, prefix, name)
    return index


def _check_layout(index: EntryIndex, prefix: EntryPrefix, name: str) -> None:
    if not index.sections or index.sections[0].number != prefix.header.number:
        raise Corrupt(f"{name} at byte {HEADER_BYTES}: its first section is not its own; another program wrote it")
    position = prefix.prefix_bytes
    for run in index.runs:
        if run.is_reference:
            continue
        if run.position != position:
            raise Corrupt(
                f"{name} at byte {position}: the next run is said to begin at byte {run.position}, but frames lie back "
                "to back; another program wrote it"
            )
        position += run.length
    if position != prefix.object_bytes:
        raise Corrupt(
            f"{name} at byte {position}: the runs end here instead of at byte {prefix.object_bytes}; "
            "another program wrote it"
        )


def run_frames(data: Frames, run: BundleRun, name: str) -> Iterator[Frame]:
    """Yield the frames of a run without a copy, verified against their checksums and the index.

    Args:
        data: The bytes of the object from ``run.position`` on, ``run.length`` of them.
        run: The run, not a reference, with its frames or, if a checkpoint carried it, without.
        name: Name of the object, for errors.

    Raises:
        Truncated: If bytes are missing.
        Corrupt: If a frame is damaged or is not the one that the index names.
        Unsupported: If a later version wrote a frame.
    """
    if len(data) != run.length:
        raise Truncated(
            f"{name} at byte {run.position + len(data)}: cut short, the run of {run.key} has {run.length} bytes; "
            "read more of it, or restore the object"
        )
    offset, number = run.base_offset, 0
    try:
        for frame in split_frames(data):
            header = frame.header
            found = BundledFrame(header.producer_id, header.producer_epoch, header.first_sequence, header.record_count)
            if header.base_offset != offset or (run.frames and run.frames[number : number + 1] != (found,)):
                raise Corrupt(f"frame of offset {header.base_offset} is not frame {number} of its run; restore it")
            offset, number = header.end_offset, number + 1
            yield frame
    except (Corrupt, Unsupported) as error:
        raise type(error)(f"{name}, run of {run.key} at byte {run.position}: {error}") from error
    if offset != run.end_offset:
        raise Corrupt(
            f"{name} at byte {run.position + run.length}: the run of {run.key} ends at offset {offset} instead of "
            f"{run.end_offset}; restore the object"
        )


def _writer(content: bytes, name: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Corrupt(f"{name} at byte {HEADER_BYTES}: not the id of a broker; another program wrote it") from error


def _foreign(data: Frames, name: str) -> Corrupt:
    return Corrupt(f"{name} at byte 0: begins with {bytes(data[:8])!r} instead of {MAGIC!r}; not a bundle")
