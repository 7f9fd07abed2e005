"""Detection of files that are not UTF-8 text, by their first bytes."""

from seaweedmq.errors import InvalidArgument

MARK = b"\xef\xbb\xbf"
"""Byte order mark that Windows writes before UTF-8."""
_PACKED = {b"\x1f\x8b": ("gzip", "gzip -dc"), b"\x28\xb5\x2f\xfd": ("zstd", "zstd -dc"), b"BZh": ("bzip2", "bzip2 -dc")}
_WIDE = (b"\xff\xfe", b"\xfe\xff")


def text_of(name: str, head: bytes) -> bytes:
    """Return the first bytes of a text without a byte order mark; InvalidArgument if it is compressed, or UTF-16."""
    for magic, (kind, command) in _PACKED.items():
        if head.startswith(magic):
            raise InvalidArgument(
                f"{name} is compressed with {kind}: unpack it first, as `{command} {name} | ...` does"
            )
    if head.startswith(_WIDE):
        raise InvalidArgument(f"{name} is UTF-16, and text is read as UTF-8: save it as UTF-8")
    return head.removeprefix(MARK)
