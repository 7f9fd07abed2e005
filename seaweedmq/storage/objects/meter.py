"""The requests to an object store by kind, their bytes, and their price."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from seaweedmq.errors import InvalidArgument

MILLION = 1_000_000


class RequestKind(StrEnum):
    """A kind of request, as stores price them."""

    PUT = "put"
    """Create, put, replace, and each step of a write in parts."""
    GET = "get"
    HEAD = "head"
    LIST = "list"
    """One page of a listing."""
    DELETE = "delete"
    """Deletion of up to a thousand objects."""
    COPY = "copy"


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices of requests, in dollars."""

    per_million: Mapping[RequestKind, float]

    @classmethod
    def load(cls, path: Path) -> "Prices":
        """Read the prices of a JSON file like ``deploy/prices.json``; raises InvalidArgument for another content."""
        try:
            found = json.loads(path.read_text())["dollars_per_million_requests"]
            return cls({kind: float(found[kind.value]) for kind in RequestKind})
        except (OSError, ValueError, KeyError, TypeError) as e:
            kinds = ", ".join(RequestKind)
            raise InvalidArgument(
                f"{path} has no price for each kind of request ({type(e).__name__}: {e}): "
                f'give {{"dollars_per_million_requests": {{...}}}} with {kinds}'
            ) from e


S3_PRICES = Prices(
    {
        RequestKind.PUT: 5.0,
        RequestKind.GET: 0.4,
        RequestKind.HEAD: 0.4,
        RequestKind.LIST: 5.0,
        RequestKind.DELETE: 0.0,
        RequestKind.COPY: 5.0,
    }
)
"""List price of S3 Standard in us-east-1, the same as ``deploy/prices.json``: https://aws.amazon.com/s3/pricing/"""


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """The requests since the start. Failed and retried ones count, since a store may bill them."""

    requests: Mapping[RequestKind, int]
    written_bytes: int
    read_bytes: int

    def dollars(self, prices: Prices = S3_PRICES) -> float:
        """Return the price of the requests."""
        return sum(count * prices.per_million[kind] for kind, count in self.requests.items()) / MILLION


@dataclass(slots=True)
class RequestMeter:
    """The counter of requests, which several threads may share."""

    _requests: dict[RequestKind, int] = field(default_factory=lambda: dict.fromkeys(RequestKind, 0))
    _written_bytes: int = 0
    _read_bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: RequestKind, count: int = 1, *, written_bytes: int = 0, read_bytes: int = 0) -> None:
        """Count requests that were sent, or bytes of them."""
        with self._lock:
            self._requests[kind] += count
            self._written_bytes += written_bytes
            self._read_bytes += read_bytes

    def counts(self) -> RequestCounts:
        """Return the requests so far."""
        with self._lock:
            return RequestCounts(dict(self._requests), self._written_bytes, self._read_bytes)
