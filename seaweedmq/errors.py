"""The few kinds of error, each saying whose fault it is and what the caller should do.

Every error a user can meet derives from :class:`SeaweedMQError`. A message names the thing, the rule it broke and
the remedy. ``rpc.status`` is the only place that turns these into gRPC status codes and back.
"""

from typing import ClassVar, TypeVar


class SeaweedMQError(Exception):
    """Base of all errors.

    ``code`` travels on the wire; ``retryable`` tells whether the same call may succeed later unchanged.
    """

    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False


E = TypeVar("E", bound=SeaweedMQError)


def fresh(error: E) -> E:
    """The same error without the frames it went through: what is kept, to be raised more than once, is raised so.

    Every raise adds to an exception's traceback, which keeps alive the frames it names and all they refer to.
    """
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    again.__cause__ = error.__cause__
    again.__suppress_context__ = error.__suppress_context__
    return again


def unraised(error: E) -> E:
    """The error itself without the frames it went through, to be stored by the function that caught it.

    One of these frames is that function's, which refers to the error: both would stay until the garbage is collected.
    """
    return error.with_traceback(None)


class InvalidArgument(SeaweedMQError):
    """The caller's fault: the input breaks a rule. Correct it; sending it again unchanged fails again."""

    code = "INVALID_ARGUMENT"


class OutOfOrderSequence(InvalidArgument):
    """A frame of a Kafka producer that is neither its next one nor a repeat: what comes before it is missing, or it is
    none of the frames that were stored. Send what comes before it first, or begin a new epoch."""


class DuplicateSequence(InvalidArgument):
    """A frame of a Kafka producer that was stored before, longer ago than its offset is remembered. Nothing is to be
    done."""


class NotFound(SeaweedMQError):
    """The named topic, segment, broker or file does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(SeaweedMQError):
    """The name or address is taken."""

    code = "ALREADY_EXISTS"


class StaleMetadata(SeaweedMQError):
    """The caller's view of the cluster is old (wrong owner, wrong epoch). Refresh the metadata, then retry."""

    code = "STALE_METADATA"
    retryable = True


class Fenced(SeaweedMQError):
    """A newer incarnation of the caller (producer, member of a group, primary of a segment) has taken over. Stop."""

    code = "FENCED"


class Deposed(SeaweedMQError):
    """The broker does not lead, or has lost its lease: nothing was written. Ask the new leader, or come back."""

    code = "DEPOSED"
    retryable = True


class ProtocolViolation(SeaweedMQError):
    """The peer's fault: it said what the protocol does not allow here. Nothing of it was taken; mend the peer."""

    code = "PROTOCOL_VIOLATION"


class OutOfRange(SeaweedMQError):
    """The offset is below what retention kept, or above what is committed."""

    code = "OUT_OF_RANGE"


class Unavailable(SeaweedMQError):
    """The cluster can not do it now (no leader, broker gone, etcd out of reach). Retry with back-off."""

    code = "UNAVAILABLE"
    retryable = True


class Conflict(Unavailable):
    """The metadata moved on between reading and writing: read again, then retry. Nothing was written."""


class ConnectionRefused(Unavailable):
    """Nobody listens at a broker's address: found out on this side, at once."""


class DeadlineExceeded(SeaweedMQError):
    """It was not done in the time allowed. It may still happen; idempotent producers may safely retry."""

    code = "DEADLINE_EXCEEDED"
    retryable = True


class ResourceExhausted(SeaweedMQError):
    """A configured limit is reached (memory, segments, producers). Slow down or raise the limit."""

    code = "RESOURCE_EXHAUSTED"
    retryable = True


class StorageFailed(SeaweedMQError):
    """The shared storage refused: unwritable, full or gone. Nothing acknowledged is affected; mend it and retry."""

    code = "STORAGE_FAILED"
    retryable = True


class StorageFull(StorageFailed):
    """The shared storage has no room. Reads and deletions go through; free space, or wait for retention, and retry."""


class Corrupt(SeaweedMQError):
    """Bytes fail their checksum or structure. The message names the file and position. Never served."""

    code = "CORRUPT"


class DataLoss(SeaweedMQError):
    """Committed records are in no file, and neither retention nor a low watermark explains it. The message names the
    topic, the segment and the offsets. Restore the files, or read with ``on_missing="skip"``."""

    code = "DATA_LOSS"

    def __init__(self, message: str, start_offset: int | None = None, end_offset: int | None = None) -> None:
        super().__init__(message)
        self.start_offset = start_offset
        """First offset that is missing; None if the error came from another process, which put it into words."""
        self.end_offset = end_offset
        """First offset behind the gap that a file holds, or the end of the read; None as above."""


class Unsupported(SeaweedMQError):
    """The protocol, format version or encoding is not one this build speaks. Upgrade the older side."""

    code = "UNSUPPORTED"


class Closed(SeaweedMQError):
    """The client, publisher or subscriber was closed by its owner."""

    code = "CLOSED"


ALL_KINDS: tuple[type[SeaweedMQError], ...] = (
    InvalidArgument,
    NotFound,
    AlreadyExists,
    StaleMetadata,
    Fenced,
    Deposed,
    ProtocolViolation,
    OutOfRange,
    Unavailable,
    DeadlineExceeded,
    ResourceExhausted,
    StorageFailed,
    Corrupt,
    DataLoss,
    Unsupported,
    Closed,
)
