"""Mapping of errors to Kafka's error codes, which depend on the scope of the request: one table for all handlers."""

from collections.abc import Mapping
from enum import Enum

from seaweedmq import errors
from seaweedmq.codec.kafka.batch_errors import InvalidBatch
from seaweedmq.model.kafka.codes import Code


class ErrorScope(Enum):
    """The scope of a request: the same error has different codes in each, since clients react differently."""

    PRODUCE = "produce"
    """Requests to the primary of a partition, to append records."""
    FETCH = "fetch"
    """Requests to the primary of a partition, to read records."""
    DATA = "data"
    """Other requests to the primary of a partition, about records."""
    METADATA = "metadata"
    """Requests to any broker, about topics and brokers."""
    COORDINATOR = "coordinator"
    """Requests to the coordinator of a group."""
    ADMIN = "admin"
    """Requests to the cluster's leader, which create, change or delete."""


class KafkaError(errors.SeaweedMQError):
    """An error with a Kafka error code, of a request or a part of it."""

    def __init__(self, code: int, message: str = "") -> None:
        super().__init__(message or Code(code).name)
        self.kafka_code = code


_ELSEWHERE = {
    ErrorScope.METADATA: Code.LEADER_NOT_AVAILABLE,
    ErrorScope.COORDINATOR: Code.NOT_COORDINATOR,
    ErrorScope.ADMIN: Code.NOT_CONTROLLER,
}
_CODES: Mapping[type[BaseException], tuple[Code, Mapping[ErrorScope, Code]]] = {
    errors.StaleMetadata: (Code.NOT_LEADER_OR_FOLLOWER, _ELSEWHERE),
    errors.Deposed: (Code.NOT_LEADER_OR_FOLLOWER, _ELSEWHERE),
    errors.Unavailable: (
        Code.NOT_LEADER_OR_FOLLOWER,
        {**_ELSEWHERE, ErrorScope.COORDINATOR: Code.COORDINATOR_NOT_AVAILABLE},
    ),
    errors.NotFound: (Code.UNKNOWN_TOPIC_OR_PARTITION, {ErrorScope.COORDINATOR: Code.GROUP_ID_NOT_FOUND}),
    errors.AlreadyExists: (Code.TOPIC_ALREADY_EXISTS, {}),
    errors.OutOfRange: (Code.OFFSET_OUT_OF_RANGE, {}),
    # Java's consumer raises CORRUPT_MESSAGE to its caller, with the offset; it retries KAFKA_STORAGE_ERROR silently.
    errors.DataLoss: (Code.CORRUPT_MESSAGE, {}),
    errors.Corrupt: (Code.KAFKA_STORAGE_ERROR, {ErrorScope.FETCH: Code.CORRUPT_MESSAGE}),
    errors.StorageFailed: (Code.KAFKA_STORAGE_ERROR, {}),
    errors.DeadlineExceeded: (Code.REQUEST_TIMED_OUT, {}),
    TimeoutError: (Code.REQUEST_TIMED_OUT, {}),
    # A producer would resend after REQUEST_TIMED_OUT, silently until its delivery timeout.
    errors.ResourceExhausted: (
        Code.REQUEST_TIMED_OUT,
        {ErrorScope.PRODUCE: Code.POLICY_VIOLATION, ErrorScope.ADMIN: Code.POLICY_VIOLATION},
    ),
    errors.InvalidArgument: (Code.INVALID_REQUEST, {}),
    errors.ProtocolViolation: (Code.INVALID_REQUEST, {}),
    errors.OutOfOrderSequence: (Code.INVALID_REQUEST, {ErrorScope.PRODUCE: Code.OUT_OF_ORDER_SEQUENCE_NUMBER}),
    errors.DuplicateSequence: (Code.INVALID_REQUEST, {ErrorScope.PRODUCE: Code.DUPLICATE_SEQUENCE_NUMBER}),
    errors.Fenced: (Code.INVALID_PRODUCER_EPOCH, {}),
    errors.Unsupported: (Code.UNSUPPORTED_VERSION, {}),
}
"""The code of an error and its subclasses, and the codes in scopes that differ."""


def code_of(error: BaseException, *, scope: ErrorScope = ErrorScope.DATA) -> Code:
    """Return the error code of ``error`` for requests of a scope, after which clients react correctly."""
    if isinstance(error, KafkaError):
        return Code(error.kafka_code)
    if isinstance(error, InvalidBatch) and scope is ErrorScope.PRODUCE:
        return Code[error.error_code.name]
    for kind in type(error).__mro__:
        if kind in _CODES:
            usual, special = _CODES[kind]
            return special.get(scope, usual)
    return Code.UNKNOWN_SERVER_ERROR
