"""Mapping of errors to Kafka's error codes, which depend on the scope of the request."""

from enum import Enum

from seaweedmq.errors import (
    AlreadyExists,
    Corrupt,
    DataLoss,
    DeadlineExceeded,
    Deposed,
    Fenced,
    InvalidArgument,
    NotFound,
    OutOfRange,
    ProtocolViolation,
    ResourceExhausted,
    SeaweedMQError,
    StaleMetadata,
    StorageFailed,
    Unavailable,
    Unsupported,
)
from seaweedmq.kafka.wire.codes import Code


class ErrorScope(Enum):
    """The scope of a request: the same error has different codes in each, since clients react differently."""

    DATA = "data"
    """Requests to the primary of a partition, about records."""
    METADATA = "metadata"
    """Requests to any broker, about topics and brokers."""
    COORDINATOR = "coordinator"
    """Requests to the coordinator of a group."""
    ADMIN = "admin"
    """Requests to the cluster's leader, which create, change or delete."""


class KafkaError(SeaweedMQError):
    """An error with a Kafka error code, of a request or a part of it."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or Code(code).name)
        self.kafka_code = code


_ELSEWHERE = {
    ErrorScope.DATA: Code.NOT_LEADER_OR_FOLLOWER,
    ErrorScope.METADATA: Code.LEADER_NOT_AVAILABLE,
    ErrorScope.COORDINATOR: Code.NOT_COORDINATOR,
    ErrorScope.ADMIN: Code.NOT_CONTROLLER,
}
_UNAVAILABLE = {
    ErrorScope.DATA: Code.NOT_LEADER_OR_FOLLOWER,
    ErrorScope.METADATA: Code.LEADER_NOT_AVAILABLE,
    ErrorScope.COORDINATOR: Code.COORDINATOR_NOT_AVAILABLE,
    ErrorScope.ADMIN: Code.NOT_CONTROLLER,
}


def code_of(error: BaseException, *, place: ErrorScope = ErrorScope.DATA) -> Code:
    """Return the error code of ``error`` for requests of a scope, after which clients react correctly."""
    match error:
        case KafkaError():
            return Code(error.kafka_code)
        case StaleMetadata() | Deposed():
            return _ELSEWHERE[place]
        case Unavailable():
            return _UNAVAILABLE[place]
        case NotFound():
            return Code.GROUP_ID_NOT_FOUND if place is ErrorScope.COORDINATOR else Code.UNKNOWN_TOPIC_OR_PARTITION
        case OutOfRange():
            return Code.OFFSET_OUT_OF_RANGE
        case DataLoss():
            # Java's consumer raises this code to its caller, with the offset; it retries KAFKA_STORAGE_ERROR silently.
            return Code.CORRUPT_MESSAGE
        case StorageFailed() | Corrupt():
            return Code.KAFKA_STORAGE_ERROR
        case DeadlineExceeded() | TimeoutError():
            return Code.REQUEST_TIMED_OUT
        case AlreadyExists():
            return Code.TOPIC_ALREADY_EXISTS
        case ResourceExhausted():
            return Code.POLICY_VIOLATION if place is ErrorScope.ADMIN else Code.REQUEST_TIMED_OUT
        case InvalidArgument() | ProtocolViolation():
            return Code.INVALID_REQUEST
        case Fenced():
            return Code.INVALID_PRODUCER_EPOCH
        case Unsupported():
            return Code.UNSUPPORTED_VERSION
        case _:
            return Code.UNKNOWN_SERVER_ERROR
