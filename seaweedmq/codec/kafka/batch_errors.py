"""Why a record batch is refused, as Kafka's protocol numbers it."""

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
    """A record for which its batch is refused (KIP-467)."""

    number: int
    """Number of the record in its batch, from 0."""
    text: str


class InvalidBatch(InvalidArgument):
    """A record batch breaks a rule; nothing of it is taken."""

    def __init__(self, refusal: BatchErrorCode, text: str, records: Sequence[RecordError] = ()) -> None:
        super().__init__(text)
        self.refusal = refusal
        """What Kafka calls the rule."""
        self.records = records
        """The records at fault, if the rule is one for single records."""
