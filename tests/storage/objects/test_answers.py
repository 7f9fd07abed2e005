"""Answers of stores, and the errors that they are for callers."""

import pytest

from seaweedmq.errors import AlreadyExists, Conflict, NotFound, StorageFailed
from seaweedmq.storage.objects.answers import NO_KEYS, Answer, answer_of

NAME = "s3://bucket/prefix/key"


def text(status: str, code: str) -> str:
    return (
        f"Generic S3 error: Error performing PUT https://x/bucket/key?sig=HUSH in 2ms - Server returned non-2xx status "
        f"code: {status}: <Error><Code>{code}</Code><StringToSign>HUSH</StringToSign></Error>"
    )


@pytest.mark.parametrize(
    ("status", "code", "reason", "remedy"),
    [
        ("404 Not Found", "NoSuchBucket", "the bucket does not exist", "create it"),
        ("404 Not Found", "ContainerNotFound", "the bucket does not exist", "create it"),
        ("301 Moved Permanently", "PermanentRedirect", "in another region", "AWS_REGION"),
        ("400 Bad Request", "AuthorizationHeaderMalformed", "in another region", "AWS_REGION"),
        ("400 Bad Request", "ExpiredToken", "keys have expired", "renew them"),
        ("403 Forbidden", "RequestTimeTooSkewed", "clock of this machine differs", "synchronize it"),
        ("403 Forbidden", "InvalidAccessKeyId", "does not know the access key", "AWS_ACCESS_KEY_ID"),
        ("403 Forbidden", "SignatureDoesNotMatch", "signature is wrong", "AWS_SECRET_ACCESS_KEY"),
        ("403 Forbidden", "AccessDenied", "not permitted", "permit reading, writing, listing and deleting"),
        ("503 Slow Down", "SlowDown", "limits requests", "raise the limit"),
        ("500 Internal Server Error", "InternalError", "the store failed", "check the store"),
        ("501 Not Implemented", "NotImplemented", "rejected the request", "check the settings"),
        ("400 Bad Request", "InvalidArgument", "rejected the request", "check the settings"),
    ],
)
def test_each_rejection_has_its_reason_and_remedy(status: str, code: str, reason: str, remedy: str) -> None:
    error = answer_of(Exception(text(status, code))).error("create", NAME)
    assert type(error) is StorageFailed
    assert str(error).startswith(f"cannot create {NAME}: ")
    assert f"({status[:3]} {code})" in str(error)
    assert reason in str(error)
    assert remedy in str(error)
    assert "HUSH" not in str(error)


@pytest.mark.parametrize(
    ("status", "code", "action", "kind"),
    [
        (404, "NoSuchKey", "read", NotFound),
        (404, "", "replace", Conflict),
        (412, "PreconditionFailed", "create", AlreadyExists),
        (409, "BlobAlreadyExists", "create", AlreadyExists),
        (412, "PreconditionFailed", "replace", Conflict),
    ],
)
def test_answers_of_the_contract(status: int, code: str, action: str, kind: type[Exception]) -> None:
    answer = Answer(status, code)
    assert type(answer.error(action, NAME)) is kind
    assert NAME in str(answer.error(action, NAME))
    assert not answer.is_retried


@pytest.mark.parametrize("status", [0, 408, 409, 429, 500, 502, 503, 504])
def test_passing_troubles_are_retried(status: int) -> None:
    assert Answer(status, "").is_retried


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 405, 411, 412, 501])
def test_lasting_rejections_are_not_retried(status: int) -> None:
    assert not Answer(status, "").is_retried


def test_only_overload_lowers_the_concurrency() -> None:
    assert [s for s in (0, 403, 409, 429, 500, 503) if Answer(s, "").is_throttled] == [429, 503]


def test_missing_keys_are_named() -> None:
    error = Exception("Error performing PUT http://169.254.169.254/latest/api/token in 7ms - HTTP error")
    answer = answer_of(error)
    assert answer == Answer(0, NO_KEYS)
    assert not answer.is_retried
    assert "set AWS_ACCESS_KEY_ID" in str(answer.error("read", NAME))
