"""Errors for which a record batch is rejected, with Kafka's error codes."""

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from seaweedmq.errors import InvalidArgument


class BatchErrorCode(IntEnum):
    """Error codes of https://kafka.apache.org/protocol#protocol_error_codes."""

    CORRUPT_MESSAGE = 2
    MESSAGE_TOO_LARGE = 10
    INVALID_TIMESTAMP = 32
    INVALID_TXN_STATE = 48
    UNSUPPORTED_COMPRESSION_TYPE = 76
    INVALID_RECORD = 87


class RecordError(NamedTuple):
    """A record for which its batch is rejected (KIP-467)."""

    number: int
    """Number of the record in its batch, from 0."""
    text: str


class InvalidBatch(InvalidArgument):
    """The error of a record batch that breaks a rule; the whole batch is rejected."""

    def __init__(self, error_code: BatchErrorCode, text: str, records: Sequence[RecordError] = ()) -> None:
        super().__init__(text)
        self.error_code = error_code
        """Kafka's error code of the rule."""
        self.records = records
        """Invalid records, if the rule is one for single records."""
