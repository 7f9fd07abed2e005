"""Failures on the wire: which Kafka error code a failure is, in which place."""

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
    """Whom a request asks: the same failure has another code for each, since clients do something else about it."""

    DATA = "data"
    """The primary of a partition: records."""
    METADATA = "metadata"
    """Any broker: topics and brokers."""
    COORDINATOR = "coordinator"
    """The coordinator of a group."""
    ADMIN = "admin"
    """The cluster: what is to be created, changed or deleted."""


class KafkaError(SeaweedMQError):
    """A request, or a part of it, is answered with an error code that only Kafka knows."""

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
    """The error code that says to a client in ``place`` what it should do about ``error``."""
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
            # Java's consumer raises this one to its caller, with the offset; KAFKA_STORAGE_ERROR it retries in silence.
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
