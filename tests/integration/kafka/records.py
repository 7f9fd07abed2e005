"""Records that the clients of these tests publish and read: plain tuples, to send them between processes."""

from typing import NamedTuple

T0_MS = 1_700_000_000_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
TIMEOUT_S = 30.0
CREATE_TIME, APPEND_TIME = 0, 1
"""Types of timestamps, as in a batch."""
Headers = tuple[tuple[str, bytes | None], ...]


class Sent(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = T0_MS


class Read(NamedTuple):
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp_ms: int
    timestamp_type: int

    @property
    def sent(self) -> Sent:
        """The record without the fields that the broker added."""
        return Sent(self.key, self.value, self.headers, self.timestamp_ms)


def of_every_kind(mark: bytes) -> list[Sent]:
    """Return every kind of record, and enough of them that compression pays."""
    return [
        Sent(b"key", mark),
        Sent(None, mark + b" has no key", (), T0_MS + 1),
        Sent(b"gone", None, (("why", mark),), T0_MS + 2),
        Sent(b"", b"", (), T0_MS + 3),
        Sent(None, None, (), T0_MS + 4),
        Sent(
            b"h", mark, (("b", b"1"), ("a", None), ("b", b"2"), ("b", b"1"), ("", b""), ("ü", b"\xff")), T0_MS - 5_000
        ),
        Sent(b"h2", mark, (("b", b"1"), ("a", b""), ("b", b"2"), ("", b""), ("ü", b"\xff")), T0_MS + 7),
        *(Sent(b"many", b"%s %06d " % (mark, n) * 40, (("n", b"%d" % n),), T0_MS + n) for n in range(100)),
    ]
