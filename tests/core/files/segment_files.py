"""Files of a segment, as values: ``log 0-b-1`` begins at offset 0, ``table 0-10`` has offsets 0 to 9."""

from seaweedmq.model.files import FileKind, SegmentFile
from tests.support.segments import NAME


def log(base: int, writer: str = "b-1", *, size_bytes: int = 10, modified_us: int = 0) -> SegmentFile:
    return _file(FileKind.LOG, base, None, writer, size_bytes, modified_us)


def table(base: int, end: int, *, size_bytes: int = 10, modified_us: int = 0, segment: int = 0) -> SegmentFile:
    return _file(FileKind.TABLE, base, end, "", size_bytes, modified_us, segment)


def _file(
    kind: FileKind, base: int, end: int | None, writer: str, size_bytes: int, modified_us: int, segment: int = 0
) -> SegmentFile:
    return SegmentFile(
        topic=NAME,
        segment=segment,
        kind=kind,
        base_offset=base,
        end_offset=end,
        writer=writer,
        size_bytes=size_bytes,
        path=f"{kind} {base}-{writer or end}",
        modified_us=modified_us,
    )
