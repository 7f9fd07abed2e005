"""Translation of errors to gRPC status and back.

The kind travels in the trailing metadata ``seaweedmq-error``, since several kinds share one status code. A status
without this metadata comes from the transport, or from a bug.
"""

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import quote

import grpc
import grpc.aio

from seaweedmq import errors
from seaweedmq.errors import SeaweedMQError
from seaweedmq.rpc.transport import ERROR_KEY

MESSAGE_BYTES_MAX: Final = 4_000
"""Largest percent-encoded error message on the wire: gRPC limits all metadata of a call to 8 KiB."""

_STATUS: Final[dict[type[SeaweedMQError], grpc.StatusCode]] = {
    errors.InvalidArgument: grpc.StatusCode.INVALID_ARGUMENT,
    errors.NotFound: grpc.StatusCode.NOT_FOUND,
    errors.AlreadyExists: grpc.StatusCode.ALREADY_EXISTS,
    errors.StaleMetadata: grpc.StatusCode.ABORTED,
    errors.Fenced: grpc.StatusCode.FAILED_PRECONDITION,
    errors.Deposed: grpc.StatusCode.ABORTED,
    errors.ProtocolViolation: grpc.StatusCode.INVALID_ARGUMENT,
    errors.OutOfRange: grpc.StatusCode.OUT_OF_RANGE,
    errors.Unavailable: grpc.StatusCode.UNAVAILABLE,
    errors.DeadlineExceeded: grpc.StatusCode.DEADLINE_EXCEEDED,
    errors.ResourceExhausted: grpc.StatusCode.RESOURCE_EXHAUSTED,
    errors.StorageFailed: grpc.StatusCode.UNAVAILABLE,
    errors.Corrupt: grpc.StatusCode.DATA_LOSS,
    errors.DataLoss: grpc.StatusCode.DATA_LOSS,
    errors.Unsupported: grpc.StatusCode.UNIMPLEMENTED,
    errors.Closed: grpc.StatusCode.CANCELLED,
}
_KINDS: Final = {kind.code: kind for kind in errors.ALL_KINDS}
_TOO_LARGE = re.compile(r"larger than max \((\d+) vs\. (\d+)\)")


def code_of(error: SeaweedMQError) -> str:
    """Return the code of an error on the wire."""
    return _kind_of(error).code


def from_code(code: str, text: str) -> SeaweedMQError:
    """Return the error of a code; a plain SeaweedMQError if only a newer peer knows the code."""
    return _KINDS.get(code, SeaweedMQError)(text)


def _kind_of(error: SeaweedMQError) -> type[SeaweedMQError]:
    return next((k for k in type(error).__mro__ if k in _STATUS), SeaweedMQError)


def to_status(error: SeaweedMQError) -> tuple[grpc.StatusCode, str, tuple[tuple[str, str], ...]]:
    """Return the status code, details and trailing metadata of an error."""
    kind = _kind_of(error)
    code = _STATUS.get(kind, grpc.StatusCode.INTERNAL)
    return code, _bounded(str(error)), ((ERROR_KEY, kind.code),)


def from_status(error: grpc.aio.AioRpcError, *, method: str, address: str, timeout_s: float | None) -> SeaweedMQError:
    """Return the error that a broker raised, or the error that describes a failure of the transport."""
    details = error.details() or ""
    trailing: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]
    kind = next((value for key, value in trailing if key == ERROR_KEY), None)
    if kind is not None:
        return from_code(str(kind), details)
    where = f"broker {address}"
    match error.code():
        case grpc.StatusCode.UNAVAILABLE if "onnection refused" in details:
            return errors.ConnectionRefused(
                f"{where} is unreachable (connection refused): check that it runs there, and retry"
            )
        case grpc.StatusCode.UNAVAILABLE:
            return errors.Unavailable(f"{where} is unreachable ({details}): check that it runs there, and retry")
        case grpc.StatusCode.INTERNAL:  # a reset stream or a broken HTTP/2 frame: a broker's INTERNAL has a kind
            return errors.Unavailable(f"the connection to {where} broke in {method} ({details}): retry")
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return errors.DeadlineExceeded(
                f"{method} at {where} timed out after {timeout_s} s and may still take effect: retry"
            )
        case grpc.StatusCode.CANCELLED:
            return errors.Unavailable(f"{where} ended {method} ({details}), it may be stopping: retry")
        case grpc.StatusCode.UNIMPLEMENTED:
            return errors.Unsupported(f"{where} does not know {method}: upgrade the broker")
        case grpc.StatusCode.UNAUTHENTICATED | grpc.StatusCode.PERMISSION_DENIED as code:  # brokers send neither
            return errors.Unsupported(
                f"{where} is not a broker, it replies to {method} with {code.name}: correct its address"
            )
        case grpc.StatusCode.RESOURCE_EXHAUSTED:
            return _exhausted(details, method, where)
        case code:
            return SeaweedMQError(f"{method} at {where} failed: {code.name}: {details}")


def _exhausted(details: str, method: str, where: str) -> SeaweedMQError:
    sizes = _TOO_LARGE.search(details)
    if sizes is None:
        return errors.ResourceExhausted(f"{where} rejected {method}, {details}: slow down and retry")
    if "CLIENT:" in details:
        side, remedy = "this client", "raise message_bytes_max of its dialer"
    else:
        side, remedy = where, "send smaller messages, and large frames as head and chunks"
    return errors.InvalidArgument(
        f"a message of {sizes[1]} bytes is over the limit of {sizes[2]} bytes of {side} in {method}: {remedy}"
    )


def _bounded(message: str) -> str:
    """Return the message as valid UTF-8, truncated to the limit of the metadata."""
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    if len(text) <= MESSAGE_BYTES_MAX and len(quote(text)) <= MESSAGE_BYTES_MAX:
        return text
    budget = MESSAGE_BYTES_MAX - len("...")
    kept = []
    for character in text:
        budget -= len(quote(character))
        if budget < 0:
            break
        kept.append(character)
    return "".join(kept) + "..."
