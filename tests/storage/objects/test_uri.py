"""URIs of storages in object stores."""

import pytest

from seaweedmq.errors import InvalidArgument
from seaweedmq.storage.objects.uri import ObjectsUri, is_objects_uri


@pytest.mark.parametrize(
    ("uri", "scheme", "bucket", "prefix"),
    [
        ("s3://bucket/prefix", "s3", "bucket", "prefix"),
        ("s3://bucket/a/b/", "s3", "bucket", "a/b"),
        ("gs://my.bucket.with.dots/p", "gs", "my.bucket.with.dots", "p"),
        ("az://container_1/p", "az", "container_1", "p"),
        ("s3://bucket/pre fix/städte 😀", "s3", "bucket", "pre fix/städte 😀"),
        ("s3://bucket/a%20b", "s3", "bucket", "a%20b"),
        ("s3://bucket/user@host:1", "s3", "bucket", "user@host:1"),
    ],
)
def test_a_uri_names_bucket_and_prefix(uri: str, scheme: str, bucket: str, prefix: str) -> None:
    found = ObjectsUri.parse(uri)
    assert (found.scheme, found.bucket, found.prefix) == (scheme, bucket, prefix)
    assert str(found) == uri.rstrip("/")
    assert ObjectsUri.parse(str(found)) == found
    assert is_objects_uri(uri)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("s3://bucket", "names no prefix"),
        ("s3://bucket/", "names no prefix"),
        ("s3://bucket///", "names no prefix"),
        ("s3://", "not the name of a bucket"),
        ("s3:///prefix", "not the name of a bucket"),
        ("s3://buck et/prefix", "not the name of a bucket"),
        ("s3://büchse/prefix", "not the name of a bucket"),
        ("s3://bucket/a//b", "empty segment"),
        ("s3://bucket//a", "empty segment"),
        ("s3://bucket/../a", "empty segment"),
        ("s3://bucket/a/./b", "empty segment"),
        ("s3://bucket/a\x00b", "control characters"),
        ("s3://bucket/a\nb", "control characters"),
        ("s3://bucket/" + "ü" * 257, "more than 512 bytes"),
        ("s3://bucket/p?region=x", "query"),
        ("s3://bucket/p#x", "fragment"),
        ("http://host/p", "no object store: begin it with s3://, gs://, az://"),
        ("/a/directory", "no object store"),
        ("", "no object store"),
        ("s3:/bucket/p", "no object store"),
    ],
)
def test_a_wrong_uri_is_rejected_with_the_rule(uri: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        ObjectsUri.parse(uri)


@pytest.mark.parametrize(
    "uri",
    ["s3://AKID:hush@bucket/p", "s3://AKID@bucket/p", "s3://bucket/p?secret=hush", "s3://bucket:hush/p", "s4://hush"],
)
def test_the_error_does_not_repeat_credentials(uri: str) -> None:
    with pytest.raises(InvalidArgument) as raised:
        ObjectsUri.parse(uri)
    assert "hush" not in str(raised.value)
    assert "AKID" not in str(raised.value)
