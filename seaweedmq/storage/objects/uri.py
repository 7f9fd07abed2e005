"""URIs of storages in object stores: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``az://container/prefix``.

The prefix is taken as it is written, spaces and non-ASCII included; ``%20`` is not decoded.
"""

import re
from dataclasses import dataclass

from seaweedmq.errors import InvalidArgument

SCHEMES = ("s3", "gs", "az")
PREFIX_BYTES_MAX = 512
"""Limit of the prefix: S3 limits whole keys to 1,024 bytes."""
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")


@dataclass(frozen=True, slots=True)
class ObjectsUri:
    """The location of a storage in an object store."""

    scheme: str
    bucket: str
    prefix: str
    """Keys begin with it and a slash; it is not empty."""

    @classmethod
    def parse(cls, uri: str) -> "ObjectsUri":
        """Return the location that a URI names, without access to it.

        Raises:
            InvalidArgument: If the URI breaks a rule. The message does not repeat credentials.
        """
        scheme, separator, rest = uri.partition("://")
        if not separator or scheme not in SCHEMES:
            raise InvalidArgument(f"the storage URI is of no object store: begin it with {', '.join(_begins())}")
        example = f"give {scheme}://bucket/prefix"
        bucket, _, prefix = rest.partition("/")
        if "@" in bucket or ":" in bucket:
            raise InvalidArgument(
                f"the {scheme}:// URI of the storage has credentials or a port, which commands and logs would show: "
                f"{example}, and set the keys in the environment"
            )
        if "?" in rest or "#" in rest:
            raise InvalidArgument(f"the {scheme}:// URI of the storage has a query or a fragment: {example}")
        if not _BUCKET.fullmatch(bucket):
            raise InvalidArgument(
                f"{bucket!r} is not the name of a bucket (letters, digits, dots, hyphens and underscores): {example}"
            )
        prefix = prefix.removesuffix("/")
        if not prefix.strip("/"):
            raise InvalidArgument(f"{scheme}://{bucket} names no prefix, below which the storage is: {example}")
        check_key(prefix, "the prefix", "the storage URI")
        if len(prefix.encode()) > PREFIX_BYTES_MAX:
            raise InvalidArgument(
                f"the prefix of {scheme}://{bucket} has more than {PREFIX_BYTES_MAX} bytes: shorten it"
            )
        return cls(scheme, bucket, prefix)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.bucket}/{self.prefix}"


def is_objects_uri(uri: str) -> bool:
    """Whether a storage URI names an object store."""
    return uri.startswith(_begins())


def check_key(key: str, what: str = "the key", where: str = "an object") -> None:
    """Raise InvalidArgument unless ``key`` has segments that every store takes as they are."""
    segments = key.split("/")
    if any(segment in ("", ".", "..") for segment in segments):
        raise InvalidArgument(f"{what} {key!r} of {where} has an empty segment, '.' or '..': remove it")
    if not key.isprintable():
        raise InvalidArgument(f"{what} {key!r} of {where} has control characters: remove them")


def _begins() -> tuple[str, ...]:
    return tuple(f"{scheme}://" for scheme in SCHEMES)
