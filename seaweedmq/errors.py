"""The errors of SeaweedMQ, each of which defines whose fault it is and what the caller should do.

Every error that reaches a user derives from :class:`SeaweedMQError`. A message names the thing, the broken rule and the
remedy. Only ``rpc.status`` converts between these errors and gRPC status codes.
"""

from typing import ClassVar, TypeVar


class SeaweedMQError(Exception):
    """Base class of all errors.

    ``code`` travels on the wire; ``retryable`` is whether the same call may succeed later unchanged.
    """

    code: ClassVar[str] = "INTERNAL"
    retryable: ClassVar[bool] = False


E = TypeVar("E", bound=SeaweedMQError)


def fresh(error: E) -> E:
    """Return a copy of the error without traceback, to raise a stored error more than once.

    Every raise adds frames to an exception's traceback, which keeps them alive with everything they refer to.
    """
    again = type(error).__new__(type(error), *error.args)
    again.__dict__.update(error.__dict__)
    again.__cause__ = error.__cause__
    again.__suppress_context__ = error.__suppress_context__
    return again


def unraised(error: E) -> E:
    """Return the error itself without its traceback, to be stored by the function that caught it.

    One of the traceback's frames is that function's, which refers to the error: the cycle would stay until a garbage
    collection.
    """
    return error.with_traceback(None)


class InvalidArgument(SeaweedMQError):
    """The caller's fault: the input breaks a rule. Correct it, since it fails again unchanged."""

    code = "INVALID_ARGUMENT"


class OutOfOrderSequence(InvalidArgument):
    """A frame of a Kafka producer that is neither its next one nor a repeat.

    An earlier frame is missing, or the frame matches no stored one. Send the missing frames first, or begin a new
    epoch.
    """


class DuplicateSequence(InvalidArgument):
    """A repeated frame of a Kafka producer whose offset is no longer remembered.

    It was stored before; no action is necessary.
    """


class NotFound(SeaweedMQError):
    """The named topic, segment, broker or file does not exist."""

    code = "NOT_FOUND"


class AlreadyExists(SeaweedMQError):
    """The name or address is taken."""

    code = "ALREADY_EXISTS"


class StaleMetadata(SeaweedMQError):
    """The caller's metadata are outdated (wrong owner, wrong epoch). Refresh the metadata, then retry."""

    code = "STALE_METADATA"
    retryable = True


class Fenced(SeaweedMQError):
    """A newer incarnation of the caller (producer, group member, primary of a segment) has taken over. Stop."""

    code = "FENCED"


class Deposed(SeaweedMQError):
    """The broker does not lead: nothing was written. Query the new leader, or retry."""

    code = "DEPOSED"
    retryable = True


class LeaseEnded(Deposed):
    """The lease of the broker has ended, and its registrations and leadership with it. Register under a new lease."""


class ProtocolViolation(SeaweedMQError):
    """The peer's fault: it broke the protocol. Nothing of the request was accepted; fix the peer."""

    code = "PROTOCOL_VIOLATION"


class OutOfRange(SeaweedMQError):
    """The offset is below the records that retention left, or above the high watermark."""

    code = "OUT_OF_RANGE"


class Unavailable(SeaweedMQError):
    """The cluster cannot do it now (no leader, no broker, etcd unreachable). Retry with back-off."""

    code = "UNAVAILABLE"
    retryable = True


class Conflict(Unavailable):
    """The metadata changed between reading and writing, and nothing was written. Read again, then retry."""


class ConnectionRefused(Unavailable):
    """No process listens at a broker's address, as this side finds out at once."""


class DeadlineExceeded(SeaweedMQError):
    """The call did not finish in time. It may still take effect; idempotent producers may safely retry."""

    code = "DEADLINE_EXCEEDED"
    retryable = True


class ResourceExhausted(SeaweedMQError):
    """A configured limit is reached (memory, segments, producers). Slow down or raise the limit."""

    code = "RESOURCE_EXHAUSTED"
    retryable = True


class StorageFailed(SeaweedMQError):
    """The shared storage failed: unwritable, full or missing. Acknowledged records are safe; repair it and retry."""

    code = "STORAGE_FAILED"
    retryable = True


class StorageFull(StorageFailed):
    """The shared storage is full. Reads and deletions succeed; free space, or wait for retention, and retry."""


class Corrupt(SeaweedMQError):
    """Bytes that fail their checksum or structure. The message names the file and position. They are never served."""

    code = "CORRUPT"


class PayloadLost(Corrupt):
    """The payload of a record by reference is missing, changed, cut short, or not one of its topic.

    Iteration continues, and the record can still be acknowledged.
    """


class DataLoss(SeaweedMQError):
    """Committed records are in no file, and neither retention nor a low watermark explains it.

    The message names the topic, the segment and the offsets. Restore the files, or read with ``on_missing="skip"``.
    """

    code = "DATA_LOSS"

    def __init__(self, message: str, start_offset: int | None = None, end_offset: int | None = None) -> None:
        super().__init__(message)
        self.start_offset = start_offset
        """First missing offset; None if the error came from another process, which sent only the message."""
        self.end_offset = end_offset
        """First offset after the gap that a file holds, or the end of the read; None as above."""


class Unsupported(SeaweedMQError):
    """A protocol, format version or encoding that this build does not support. Upgrade the older side."""

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
