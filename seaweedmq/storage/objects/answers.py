"""Failed answers of object stores, and the errors that callers get for them.

``obstore`` has the status and the body of an answer in its text only, beside the signed URL and what the store echoed.
Only the status and the error code are taken from there: everything else may hold a secret.

Codes: https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html
"""

import re
from dataclasses import dataclass

from seaweedmq.errors import AlreadyExists, Conflict, NotFound, SeaweedMQError, StorageFailed

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>|\bcode: \"(\w{1,64})\"")

_NO_BUCKET = ("the bucket does not exist", "create it, or correct the storage URI")
_REGION = ("the bucket is in another region", "set AWS_REGION to the region of the bucket")
_EXPIRED = ("the keys have expired", "renew them; writing resumes by itself, and nothing acknowledged is lost")
_KEY = ("the store does not know the access key", "correct AWS_ACCESS_KEY_ID, or AWS_ENDPOINT_URL")
_SECRET = ("the signature is wrong", "correct AWS_SECRET_ACCESS_KEY, or the key of the store in use")
_CLOCK = ("the clock of this machine differs from the store's", "synchronize it, for example by NTP")
_DENIED = (
    "the keys are not permitted to do this",
    "permit reading, writing, listing and deleting below the prefix of the storage",
)
_BUSY = ("the store limits requests", "raise the limit, or retry later")
_BROKEN = ("the store failed", "check the store, then retry")
_SILENT = ("no answer", "check the network and the endpoint of the store")
_REJECTED = ("the store rejected the request", "check the settings of the store")
NO_KEYS = "NoKeys"
"""Code for keys that neither the environment nor the machine provides."""
NO_ANSWER = "no answer"
"""Code for a request without an answer."""

_BY_CODE = {
    "NoSuchBucket": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET,
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
    "IllegalLocationConstraintException": _REGION,
    "ExpiredToken": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": _EXPIRED,
    "InvalidAccessKeyId": _KEY,
    "SignatureDoesNotMatch": _SECRET,
    "AuthenticationFailed": _SECRET,
    "RequestTimeTooSkewed": _CLOCK,
    NO_KEYS: ("there are no keys", "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"),
    "ConnectionRefused": (
        "no server listens at the endpoint",
        "start it, or correct the endpoint, as AWS_ENDPOINT_URL",
    ),
}
_BY_STATUS = {
    301: _REGION,
    307: _REGION,
    401: _SECRET,
    403: _DENIED,
    429: _BUSY,
    503: _BUSY,
}
_RETRIED = frozenset({0, 408, 409, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed. 0 stands for a missing answer, 409 for a conflict with a request
in progress unless the code is one of ``_EXISTS``."""
_EXISTS = frozenset({"BlobAlreadyExists"})
"""Codes by which Azure answers 409 to a create of a key that is taken."""
_PERMANENT = frozenset({NO_KEYS})
_THROTTLED = frozenset({429, 503})


@dataclass(frozen=True, slots=True)
class Answer:
    """A failed answer of a store."""

    status: int
    """HTTP status; 0 without an answer."""
    code: str
    """Error code of the store, or one of this module; empty if the answer has none."""

    @property
    def is_retried(self) -> bool:
        """Whether the same request may succeed later unchanged."""
        return self.status in _RETRIED and self.code not in _EXISTS and self.code not in _PERMANENT

    @property
    def is_throttled(self) -> bool:
        """Whether the store limits requests."""
        return self.status in _THROTTLED

    @property
    def lacks_bucket(self) -> bool:
        """Whether the bucket does not exist."""
        return _BY_CODE.get(self.code) is _NO_BUCKET

    def error(self, action: str, name: str) -> SeaweedMQError:
        """Return the error for the caller of a request.

        Args:
            action: The request as a verb, like ``create``.
            name: URI of the object, without secrets.
        """
        is_missing = self.status == 404 and not self.lacks_bucket
        if action == "replace" and (is_missing or self.status == 412):
            return Conflict(f"{name} has changed since it was read, or is missing: read it again, then retry")
        if is_missing:
            return NotFound(f"{name} does not exist")
        if self.status == 412 or self.code in _EXISTS:
            return AlreadyExists(f"{name} exists: an object is created once")
        reason, remedy = _BY_CODE.get(self.code) or _BY_STATUS.get(self.status) or self._otherwise()
        shown = f" ({self.status} {self.code})".replace(" )", ")") if self.status else ""
        return StorageFailed(f"cannot {action} {name}: {reason}{shown}; {remedy}")

    def _otherwise(self) -> tuple[str, str]:
        if self.status == 0:
            return _SILENT
        return _BROKEN if self.is_retried else _REJECTED


class Rejected(Exception):
    """A request that did not succeed, with the answer. It never leaves this package."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        self.answer = answer


def answer_of(error: BaseException) -> Answer:
    """Return the answer that an error of ``obstore`` tells about."""
    text = str(error)
    if "169.254." in text or "/latest/api/token" in text:  # the metadata service of the machine, which has no keys
        return Answer(0, NO_KEYS)
    status = _STATUS.search(text)
    code = _CODE.search(text)
    if status is not None:
        return Answer(int(status[1]), (code[1] or code[2]) if code else "")
    if "redirect without LOCATION" in text:
        return Answer(301, "PermanentRedirect")
    if "Wanted range starting at" in text:  # a success without bytes, by azurite at the very end of an object
        return Answer(416, "InvalidRange")
    if isinstance(error, FileNotFoundError):
        return Answer(404, "")
    if code is not None:  # an error in the body of a success, as of a deletion of several objects
        return Answer(400, code[1] or code[2])
    return Answer(0, "ConnectionRefused" if "Connection refused" in text else NO_ANSWER)
